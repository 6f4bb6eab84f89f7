// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_log`: the output files of traced resources. Owns the files, and no traced memory.
///
/// CSV: `op,id,bytes,thread`, then `a,<id>,<bytes>,<thread>` for an allocation and `f,<id>,0,<thread>` for a
/// deallocation. Blocks are numbered from 0 by allocation, threads from 0 by first appearance, over all
/// resources and slices of the log. Leaked blocks have no `f` row. Rows of other kinds name the resource and
/// the place of the next allocations, and mark slices. docs/traces.md has the rules for readers.
///
/// Chrome trace: the array form of the Trace Event Format (Google, 2016), which viewers also read without its
/// end. Each resource is a counter of live bytes, and each thread a track of slices. Times are in
/// microseconds since the log was made. A second resource with the same name at the same time is named `name
/// (2)`.
///
/// Both files are buffered, and end with a whole event at any time. A killed program loses at most the last
/// 64 KiB of each; a program that ends with a caught exception loses nothing.
///
/// Errors: a file that cannot be written does not disturb the traced program. The log keeps the error and
/// drops the rest of that file. `error()` and `close()` report it. The destructor reports
/// `violation_kind::lost_output` if neither was called.
#pragma once

#include <memory>
#include <mutex>  // durations: <chrono> also includes <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <tidemark/core/macros.hpp>

namespace tidemark {

class trace_resource;
class trace_slice;

/// Output of a `trace_log`. At least one file must be named.
struct trace_log_options {
  // GCC warns about omitted members without initializers, which clang-tidy finds redundant.
  // NOLINTBEGIN(readability-redundant-member-init)
  /// Path of the CSV file: a row per event, which programs can replay and `tidemark-report` shows. Empty: no
  /// CSV file.
  std::string csv{};
  /// Path of the Chrome trace: a timeline for https://ui.perfetto.dev or chrome://tracing. Empty: no trace.
  std::string chrome{};
  // NOLINTEND(readability-redundant-member-init)
  /// Limits the points of a resource's live bytes in the Chrome trace. At most two points, the highest and
  /// the last, are drawn within this time after a written point. The file stays small and the peak exact. 0
  /// writes every point.
  std::chrono::nanoseconds counter_interval = std::chrono::microseconds{1};
  /// True: in the CSV file, the place of an allocation outside an `allocation_site` is the function that
  /// called the library. Finding it takes some microseconds. False: there is no such place.
  bool finds_callers = false;
};

/// Records the events of resources in a CSV file, a Chrome trace, or both.
///
/// Use it to replay a program's allocations, to see the live blocks at the peak, or to find the step that
/// makes memory grow. Any number of `trace_resource` and `trace_slice` may share one log.
///
/// ```cpp
/// trace_log log{{.csv = "run.csv", .chrome = "run.json"}};
/// trace_resource traced{&pool, log, "activations"};
/// { trace_slice slice{log, "step 3"}; train(&traced); }
/// log.close();  // throws if anything was not written
/// ```
/// Invariant: each block and each thread has its own number. Complexity: O(log live blocks + log
/// threads) per event. Thread-safe. The log must outlive its resources and slices. A forked child has a
/// closed log; only the parent writes buffered events. A program whose `operator new` allocates from a traced
/// resource deadlocks, because the log uses `operator new`.
class trace_log {
 public:
  /// Creates or truncates the files, and writes their first lines.
  /// @throws std::invalid_argument if no file is named, or the same file twice; std::system_error, naming
  /// file and reason, if a file cannot be opened or written. The files may exist then.
  explicit trace_log(trace_log_options const& options);
  trace_log(trace_log const&) = delete;
  trace_log& operator=(trace_log const&) = delete;
  /// Closes the files as `close` does, but reports an unreturned error as `violation_kind::lost_output`.
  ~trace_log();

  /// Ends the open slices and completes the files. Later events are counted and not written. A second call
  /// does nothing.
  /// @throws std::system_error, naming file and reason, if anything was not written.
  void close();

  /// The first write error, if any.
  [[nodiscard]] std::error_code error() const noexcept;

 private:
  friend trace_resource;
  friend trace_slice;

  class recorder;  // files, tracks and threads, behind one mutex
  struct track;    // a traced resource
  struct thread;

  std::unique_ptr<recorder> recorder_;
};

/// Marks a part of the calling thread's work in the files: a step, an epoch, a scope. The Chrome trace draws
/// it on the thread's track. `tidemark-report` and `tidemark-plan` read it as a step of the CSV file.
///
/// ```cpp
/// for (int i = 0; i < steps; ++i) {
///   trace_slice step{log, "step " + std::to_string(i)};
///   { trace_slice forward{log, "forward"}; ... }  // drawn below its step
/// }
/// ```
/// Slices of a thread must end in the reverse order of their beginning, as scopes do. A slice that another
/// thread ends is drawn on the track where it began. Complexity: O(length of the name + log threads).
/// Thread-safe. The log must outlive the slice.
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] trace_slice {
 public:
  /// Begins a slice. @param name any text; null: no name. @throws std::bad_alloc, with nothing written.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] trace_slice(trace_log& log, char const* name)
      : trace_slice{log, std::string_view{name != nullptr ? name : ""}} {}
  /// The same.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] trace_slice(trace_log& log, std::string_view name);
  trace_slice(trace_slice const&) = delete;
  trace_slice& operator=(trace_slice const&) = delete;
  ~trace_slice();

 private:
  trace_log* log_;
  trace_log::thread* thread_;  // thread where the slice began; owned by the log
};

}  // namespace tidemark
