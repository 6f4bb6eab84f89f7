// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_log`: the files that traced resources write to. Owns the files, and no traced memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

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
/// Invariant: each block and each thread has a number of its own. Complexity: O(log live blocks + log
/// threads) an event. Thread-safe. It must outlive its resources and slices. In a forked child it is closed,
/// and only the parent writes what is buffered. Its records come from `operator new`; a program whose
/// `operator new` allocates from a traced resource deadlocks.
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
  friend trace_resource;
  friend trace_slice;

  class recorder;  // files, tracks and threads, behind one mutex
  struct track;    // a traced resource
  struct thread;

  std::unique_ptr<recorder> recorder_;
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
  [[nodiscard]] trace_slice(trace_log& log, std::string_view name);
  trace_slice(trace_slice const&) = delete;
  trace_slice& operator=(trace_slice const&) = delete;
  ~trace_slice();

 private:
  trace_log* log_;
  trace_log::thread* thread_;  // where it began; the log's
};

}  // namespace tidemark
