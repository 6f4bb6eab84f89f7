// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of a `trace_log`: its files, its tracks and its threads. Owns the files.
#pragma once

#include <chrono>
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

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/telemetry/trace_log.hpp>

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
  detail::traced_blocks live{};    // by address; disjoint

  // State of the counter in the Chrome trace: at most one window of points is pending.
  std::chrono::nanoseconds written{};  // time of the last point written immediately
  detail::trace_point highest{};       // highest pending point
  detail::trace_point last{};          // last pending point
  bool has_pending = false;
};

struct trace_log::thread {
  std::uint64_t number = 0;     // from 0, by first appearance
  std::size_t open_slices = 0;  // begun but not ended
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
  std::string process_id_;                        // as text, because every Chrome event has it
  std::uint64_t next_id_ = 0;                     // id of the next block
  std::list<track> tracks_;                       // a list, because resources point to elements
  std::map<unsigned long long, thread> threads_;  // by number; a map, because slices point to elements
  bool closed_ = false;                           // set by `close`
  mutable bool error_reported_ = false;           // set by `close` or `error`
};

}  // namespace tidemark
