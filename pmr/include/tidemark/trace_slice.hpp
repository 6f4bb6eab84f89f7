// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_slice`: a named stretch of time in a trace. Owns nothing.
#pragma once

#include <string_view>

#include <tidemark/trace_log.hpp>

namespace tidemark {

/// Draws a slice, from its making to its end, on the calling thread's track of the log's Chrome trace: a
/// step, an epoch, a scope. It does nothing where the log writes no Chrome trace.
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
  /// Begins a slice. @param name any text. @throws std::bad_alloc; nothing was written then.
  trace_slice(trace_log& log, std::string_view name) : log_{&log}, thread_{&log.begin_slice(name)} {}
  trace_slice(trace_slice const&) = delete;
  trace_slice& operator=(trace_slice const&) = delete;
  ~trace_slice() { log_->end_slice(*thread_); }

 private:
  trace_log* log_;
  detail::trace_thread* thread_;  // where it began; the log's
};

}  // namespace tidemark
