// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_log`: the files that traced resources write to. The log owns the files; it owns no memory that it
/// traces.
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

#include <tidemark/detail/trace_file.hpp>
#include <tidemark/detail/trace_track.hpp>

namespace tidemark {

class trace_resource;
class trace_slice;

/// What a `trace_log` writes. At least one file must be named.
struct trace_log_options {
  // GCC warns about members that are left out unless they have initializers, which clang-tidy finds
  // redundant. NOLINTBEGIN(readability-redundant-member-init)
  /// Path of the CSV file: a row an event, which programs can replay and `tidemark-report` shows.
  /// Empty: none.
  std::string csv{};
  /// Path of the Chrome trace: a timeline for https://ui.perfetto.dev or chrome://tracing. Empty: none.
  std::string chrome{};
  // NOLINTEND(readability-redundant-member-init)
  /// In the Chrome trace, a resource's live bytes within this time after a point that was written are drawn
  /// by two points at most, the highest and the last. So the file stays small and the peak exact. 0: every
  /// point is written.
  std::chrono::nanoseconds counter_interval = std::chrono::microseconds{1};
};

/// The record of what resources did, as it happened: one file to compute with, one to look at, or both.
///
/// Use it where statistics are not enough: to replay a program's allocations, to see what is live at the
/// peak, or to see which step makes memory grow. Any number of `trace_resource` and `trace_slice` write to
/// one log.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv", .chrome = "run.json"}};
/// trace_resource traced{log, &pool, "activations"};
/// { trace_slice slice{log, "step 3"}; train(&traced); }
/// log.close();  // throws if anything was not written
/// ```
/// CSV: `op,id,bytes,thread`, then `a,<id>,<bytes>,<thread>` for an allocation and `f,<id>,0,<thread>` for a
/// block given back. Blocks are numbered from 0 by allocation, threads from 0 by first appearance, over all
/// resources and slices of the log. Blocks that are never given back have no `f` row. docs/traces.md has the
/// rules for readers.
///
/// Chrome trace: the array form of the Trace Event Format (Google, 2016), which viewers read also where the
/// end is missing: each resource is a counter of live bytes, each thread a track of slices, times are in
/// microseconds since the log was made. Of two resources that have the same name at the same time, the second
/// becomes `name (2)`.
///
/// Both are buffered, and what is in a file at any time ends with a whole event: a program that is killed
/// loses the last 64 KiB of each at most, and one that an exception ends, once it is caught, nothing.
///
/// Errors: a file that cannot be written never disturbs the traced program. The error is kept, the rest of
/// that file is lost, and `error()` and `close()` tell of it; if nobody asked, the destructor reports a
/// `violation_kind::lost_output`.
///
/// Invariants: every block has its own number below `next_id_`, every thread its own below `threads_.size()`.
/// Complexity: O(log live blocks + log threads) an event. Thread-safe. It must outlive the resources and
/// slices on it. Its records come from `operator new`; a program whose `operator new` allocates from a traced
/// resource deadlocks.
class trace_log {
 public:
  /// Makes the files, or empties them, and writes their first lines.
  /// @throws std::invalid_argument if no file is named, or one for both; std::system_error, with a sentence
  /// that names file and reason, if one cannot be opened or written. The files may be there then.
  explicit trace_log(trace_log_options options);
  trace_log(trace_log const&) = delete;
  trace_log& operator=(trace_log const&) = delete;
  /// Closes the files, as `close` does, but reports an error that nobody was told of as a violation.
  ~trace_log();

  /// Ends the slices that are open and completes the files. What happens afterwards is counted and not
  /// written. A second call does nothing.
  /// @throws std::system_error, with a sentence that names file and reason, if any of it could not be
  /// written.
  void close();

  /// The first error of writing; none while all is well.
  [[nodiscard]] std::error_code error() const noexcept;

 private:
  friend trace_resource;
  friend trace_slice;

  using track = detail::trace_track;
  using thread = detail::trace_thread;

  // What trace_resource and trace_slice tell.
  track& add_track(std::string name);
  void remove_track(track& from) noexcept;
  void record_allocation(track& on, void const* block, std::size_t bytes);
  void record_deallocation(track& on, void const* block) noexcept;
  void record_refusal(track& on) noexcept;
  thread& begin_slice(std::string_view name);
  void end_slice(thread& on) noexcept;

  // The mutex must be held.
  [[nodiscard]] detail::trace_time now() const noexcept;
  [[nodiscard]] std::string unique_json_name(std::string const& name) const;
  thread& this_thread();
  using live_block = std::map<std::uintptr_t, detail::trace_block>::iterator;
  live_block record_end(track& on, live_block block, thread const& by) noexcept;
  void write_row(char op, std::uint64_t id, std::size_t bytes, thread const& by) noexcept;
  void count_live_bytes(track& on) noexcept;
  void write_held_back(track& on) noexcept;
  void write_counter(track& on, detail::trace_point const& at) noexcept;
  void write_slice_end(thread& on) noexcept;
  void finish() noexcept;
  [[nodiscard]] detail::trace_file const* failed_file() const noexcept;

  mutable std::mutex mutex_;  // guards all below
  detail::trace_file csv_;
  detail::trace_file chrome_;
  std::chrono::nanoseconds counter_interval_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string process_id_;                        // as text, because every event of the Chrome trace has it
  std::uint64_t next_id_ = 0;                     // of the next block
  std::list<track> tracks_;                       // a list, because resources hold on to theirs
  std::map<unsigned long long, thread> threads_;  // by identity; a map, because slices hold on to theirs
  bool closed_ = false;                           // by `close`
  mutable bool told_ = false;                     // whether somebody was told of the error
};

}  // namespace tidemark
