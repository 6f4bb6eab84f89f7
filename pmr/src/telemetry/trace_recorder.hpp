// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of a `trace_log`: its files, its tracks and its threads. Owns the files.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "../diagnose/code_symbols.hpp"

namespace tidemark {
namespace detail {

/// One file of a trace. Its functions neither throw nor allocate, except the constructor.
///
/// The parts of one call are never split, so the file ends with a whole record at any time, even if the
/// program is killed. Nothing is written after an error. Not thread-safe: one thread at a time.
class trace_file {
 public:
  /// Creates or truncates the file. An empty path means no file: all calls do nothing, without an error.
  /// @throws std::system_error with a sentence that names the file.
  explicit trace_file(std::string path = {});

  /// True while records are written.
  [[nodiscard]] bool is_open() const noexcept { return file_ != nullptr && !error_; }
  /// Appends the parts as one record. Allocates nothing. O(bytes).
  void append(std::initializer_list<std::string_view> parts) noexcept;
  /// Writes the buffer to the operating system.
  void flush() noexcept;
  /// Flushes and closes the file.
  void close() noexcept;
  /// Closes the file without writing the buffer. For a child, because the parent writes the buffer.
  void abandon() noexcept;
  /// Sets the error unless an earlier error is set.
  void fail(std::errc reason) noexcept;

  /// The first error, if any.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

  struct closes {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  void write(char const* text, std::size_t bytes) noexcept;

  std::string path_;
  std::unique_ptr<std::FILE, closes> file_;  // null: no file, or closed
  std::unique_ptr<char[]> buffer_;
  std::size_t used_ = 0;  // bytes in the buffer, <= buffer_bytes
  std::error_code error_;
};

struct traced_block {
  std::uint64_t id;
  std::size_t bytes;  // as requested
};
using traced_blocks = std::map<std::uintptr_t, traced_block>;

/// The place of an allocation: that of the innermost `allocation_site`, or a calling function. Compared by
/// address, because equal places have equal addresses.
struct trace_place {
  char const* file = nullptr;  // null: no `allocation_site`
  std::uint_least32_t line = 0;
  char const* label = nullptr;
  std::uintptr_t call = 0;  // an address inside the call; 0: unknown

  friend auto operator<=>(trace_place const&, trace_place const&) = default;
  /// "model.cpp:12 (weights)" or "load(model&) at trainer(+0x1a2b)"; empty if the place is unknown.
  /// @throws std::bad_alloc
  [[nodiscard]] std::string text() const;
};

// A value of a counter at a time.
struct trace_point {
  std::chrono::nanoseconds time{};  // since the log was made
  std::size_t bytes = 0;
};

}  // namespace detail

// A traced resource.
struct trace_log::track {
  std::string name;                // as given
  std::string json_name;           // quoted, and unique in the log
  detail::usage_counter& counter;  // counter of the resource
  std::uint64_t number;            // from 0, unique in the log
  bool is_named = false;           // the CSV file has the name
  detail::traced_blocks live{};    // by address; disjoint

  // State of the counter in the Chrome trace: at most one window of points is pending.
  std::chrono::nanoseconds written{};  // time of the last point written immediately
  detail::trace_point highest{};       // highest pending point
  detail::trace_point last{};          // last pending point
  bool has_pending = false;
};

struct trace_log::thread {
  std::uint64_t number = 0;                // from 0, by first appearance
  std::vector<std::uint64_t> open_slices;  // their numbers; the newest is last
};

/// Writes events to the files. Thread-safe.
class trace_log::recorder {
 public:
  explicit recorder(trace_log_options const& options);
  recorder(recorder const&) = delete;
  recorder& operator=(recorder const&) = delete;
  ~recorder();
  void close();
  [[nodiscard]] std::error_code error() const noexcept;

  track& add_track(std::string name, detail::usage_counter& counter);
  void remove_track(track& from) noexcept;
  void record_allocation(track& on, void const* block, std::size_t bytes);
  void record_deallocation(track& on, void const* block) noexcept;
  thread& begin_slice(std::string_view name);
  void end_slice(thread& on) noexcept;

 private:
  friend detail::fork_safe<>;
  friend trace_resource;
  using duration = std::chrono::nanoseconds;  // since the log was made
  using live_blocks = detail::traced_blocks;

  // @pre of the following functions: the mutex is held.
  [[nodiscard]] duration now() const noexcept;
  thread& this_thread();
  [[nodiscard]] detail::trace_place place_here() noexcept;
  void write_context(track& on, thread const& by);
  live_blocks::iterator record_end(track& on, live_blocks::iterator block, thread const& by) noexcept;
  void count_live_bytes(track& on) noexcept;
  void write_pending(track& on) noexcept;
  void write_counter(track& on, detail::trace_point const& at) noexcept;
  void write_slice_end(thread& on) noexcept;
  void finish() noexcept;
  void adapt_to_child() noexcept;
  [[nodiscard]] detail::trace_file const* failed_file() const noexcept;
  void throw_if_failed() const;

  mutable detail::fork_safe<> mutex_;  // guards all fields below
  detail::trace_file csv_;
  detail::trace_file chrome_;
  duration counter_interval_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string process_id_;  // as text, because every Chrome event has it
  bool finds_callers_;
  std::uint64_t next_id_ = 0;                                     // id of the next block
  std::uint64_t next_track_ = 0;                                  // number of the next resource
  std::uint64_t next_slice_ = 0;                                  // number of the next slice
  std::uint64_t last_track_;                                      // resource of the last `a` row
  std::uint64_t last_place_ = 0;                                  // place of the last `a` row
  std::map<detail::trace_place, std::uint64_t> places_{{{}, 0}};  // their numbers; 0: unknown
  detail::code_owner_cache<4096> owners_;                         // of calling functions
  std::list<track> tracks_;                       // a list, because resources point to elements
  std::map<unsigned long long, thread> threads_;  // by number; a map, because slices point to elements
  bool closed_ = false;                           // set by `close`
  mutable bool error_reported_ = false;           // set by `close` or `error`
};

}  // namespace tidemark
