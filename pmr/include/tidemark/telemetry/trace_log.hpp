// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_log`: the files that traced resources write to. Owns the files, and no traced memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/telemetry/detail/trace_file.hpp>

namespace tidemark {

class trace_resource;
class trace_slice;

/// What a `trace_log` writes. At least one file must be named.
struct trace_log_options {
  // GCC warns about members that are left out unless they have initializers, which clang-tidy finds
  // redundant. NOLINTBEGIN(readability-redundant-member-init)
  /// Path of the CSV file: a row per event, which programs can replay and `tidemark-report` shows.
  /// Empty: no such file.
  std::string csv{};
  /// Path of the Chrome trace: a timeline for https://ui.perfetto.dev or chrome://tracing. Empty: no such
  /// file.
  std::string chrome{};
  // NOLINTEND(readability-redundant-member-init)
  /// In the Chrome trace, a resource's live bytes within this time after a written point are drawn by at
  /// most two points, the highest and the last: the file stays small and the peak exact. 0: every point is
  /// written.
  std::chrono::nanoseconds counter_interval = std::chrono::microseconds{1};
};

/// The record of what resources did: a file to compute with, a file to look at, or both.
///
/// Use it where statistics are not enough: to replay a program's allocations, to see what is live at the
/// peak, or which step makes memory grow. Any number of `trace_resource` and `trace_slice` write to one
/// log.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv", .chrome = "run.json"}};
/// trace_resource traced{log, &pool, "activations"};
/// { trace_slice slice{log, "step 3"}; train(&traced); }
/// log.close();  // throws if anything was not written
/// ```
/// CSV: `op,id,bytes,thread`, then `a,<id>,<bytes>,<thread>` for an allocation and `f,<id>,0,<thread>` for
/// a deallocation. Blocks are numbered from 0 by allocation, threads from 0 by first appearance, over all
/// resources and slices of the log. Leaked blocks have no `f` row. docs/traces.md has the rules for
/// readers.
///
/// Chrome trace: the array form of the Trace Event Format (Google, 2016), which viewers also read without
/// its end: each resource is a counter of live bytes, each thread a track of slices, times are in
/// microseconds since the log was made. Of two resources with the same name at the same time, the second
/// is `name (2)`.
///
/// Both are buffered, and a file ends with a whole event at any time: a program that is killed loses at
/// most the last 64 KiB of each, and one that ends with a caught exception nothing.
///
/// Errors: a file that cannot be written does not disturb the traced program. The error is kept, the rest
/// of that file is lost, and `error()` and `close()` report it; if neither was called, the destructor
/// reports `violation_kind::lost_output`.
///
/// Invariants: every block has its own number below `next_id_`, every thread its own below
/// `threads_.size()`. Complexity: O(log live blocks + log threads) an event. Thread-safe. It must outlive
/// its resources and slices. In a forked child it is closed, and only the parent writes what is buffered.
/// Its records come from `operator new`; a program whose `operator new` allocates from a traced resource
/// deadlocks.
class trace_log {
 public:
  /// Creates or truncates the files, and writes their first lines.
  /// @throws std::invalid_argument if no file is named, or one for both; std::system_error, with a sentence
  /// that names file and reason, if one cannot be opened or written. The files may exist then.
  explicit trace_log(trace_log_options options);
  trace_log(trace_log const&) = delete;
  trace_log& operator=(trace_log const&) = delete;
  /// Closes the files, as `close` does, but reports an error as a violation, if it was not returned before.
  ~trace_log();

  /// Ends the open slices and completes the files. Later events are counted and not written. A second call
  /// does nothing.
  /// @throws std::system_error, with a sentence that names file and reason, if anything was not written.
  void close();

  /// The first error of writing, if there was one.
  [[nodiscard]] std::error_code error() const noexcept;

 private:
  friend detail::fork_safe<>;
  friend trace_resource;
  friend trace_slice;

  using duration = std::chrono::nanoseconds;  // since the log was made

  struct live_block {
    std::uint64_t id;
    std::size_t bytes;  // as requested
  };
  using live_blocks = std::map<std::uintptr_t, live_block>;

  // A value of a counter.
  struct point {
    duration time{};
    std::size_t bytes = 0;
  };

  // A traced resource.
  struct track {
    std::string name;                // as given
    std::string json_name;           // quoted, and unique in the log
    detail::usage_counter& counter;  // the resource's
    live_blocks live{};              // by address; no two overlap

    // The counter in the Chrome trace: at most one window of points is pending.
    duration written{};  // time of the last point that was written at once
    point highest{};     // of the pending points
    point last{};        // of the pending points
    bool has_pending = false;
  };

  struct thread {
    std::uint64_t number = 0;     // from 0, by first appearance
    std::size_t open_slices = 0;  // begun and not ended
  };

  // Called by trace_resource and trace_slice.
  track& add_track(std::string name, detail::usage_counter& counter);
  void remove_track(track& from) noexcept;
  void record_allocation(track& on, void const* block, std::size_t bytes);
  void record_deallocation(track& on, void const* block) noexcept;
  thread& begin_slice(std::string_view name);
  void end_slice(thread& on) noexcept;

  // The mutex must be held.
  [[nodiscard]] duration now() const noexcept;
  thread& this_thread();
  live_blocks::iterator record_end(track& on, live_blocks::iterator block, thread const& by) noexcept;
  void count_live_bytes(track& on) noexcept;
  void write_pending(track& on) noexcept;
  void write_counter(track& on, point const& at) noexcept;
  void write_slice_end(thread& on) noexcept;
  void finish() noexcept;
  void adapt_to_child() noexcept;
  [[nodiscard]] detail::trace_file const* failed_file() const noexcept;
  void throw_if_failed() const;

  mutable detail::fork_safe<> mutex_;  // guards all below
  detail::trace_file csv_;
  detail::trace_file chrome_;
  duration counter_interval_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string process_id_;                        // as text: every event of the Chrome trace has it
  std::uint64_t next_id_ = 0;                     // of the next block
  std::list<track> tracks_;                       // a list, because resources point to theirs
  std::map<unsigned long long, thread> threads_;  // by number; a map, because slices point to theirs
  bool closed_ = false;                           // by `close`
  mutable bool error_reported_ = false;           // by `close` or `error`
};

/// Draws a slice, over its lifetime, on the calling thread's track of the log's Chrome trace: a step, an
/// epoch, a scope. It does nothing if the log writes no Chrome trace.
///
/// ```cpp
/// for (int i = 0; i < steps; ++i) {
///   trace_slice step{log, "step " + std::to_string(i)};
///   { trace_slice forward{log, "forward"}; ... }  // drawn below its step
/// }
/// ```
/// Slices of a thread must end in the reverse order of their beginning, as scopes do. A slice that another
/// thread ends is drawn on the track where it began. Complexity: O(length of the name + log threads).
/// Thread-safe. The log must outlive it.
class [[nodiscard]] trace_slice {
 public:
  /// Begins a slice. @param name any text; null: none. @throws std::bad_alloc; nothing was written then.
  [[nodiscard]] trace_slice(trace_log& log, char const* name)
      : trace_slice{log, std::string_view{name != nullptr ? name : ""}} {}
  /// The same.
  [[nodiscard]] trace_slice(trace_log& log, std::string_view name)
      : log_{&log}, thread_{&log.begin_slice(name)} {}
  trace_slice(trace_slice const&) = delete;
  trace_slice& operator=(trace_slice const&) = delete;
  ~trace_slice() { log_->end_slice(*thread_); }

 private:
  trace_log* log_;
  trace_log::thread* thread_;  // where it began; the log's
};

}  // namespace tidemark
