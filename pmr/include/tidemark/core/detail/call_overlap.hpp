// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_overlap`: finds calls of several threads at once on a resource that is for one thread at a time.
#pragma once

#include <atomic>

#include <tidemark/core/detail/identity.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// The thread that is in a call of a resource. Unlike `thread_ownership` it lets threads take turns. Only
/// level 2 looks at it; below that a call compiles to nothing.
///
/// Relaxed, so that it puts no call before another: a data race stays one, which ThreadSanitizer reports.
class call_overlap {
 public:
  /// A call, from its construction to its destruction. A thread may make calls inside a call.
  class call {
   public:
    /// Reports a violation if another thread is in a call now. @param operation what the calling thread does
    [[nodiscard]] call([[maybe_unused]] call_overlap& of, [[maybe_unused]] char const* kind,
                       [[maybe_unused]] char const* name, [[maybe_unused]] char const* operation) noexcept {
      if constexpr (check_level >= 2) {
        const unsigned long long thread = this_thread_number();
        unsigned long long inside = 0;
        if (of.thread_.compare_exchange_strong(inside, thread, std::memory_order_relaxed)) {
          entered_ = &of;
        } else if (inside != thread) {
          report_violation(violation_kind::wrong_thread, name,
                           "%s '%s': %s while another thread is in a call: it is for one thread at a time",
                           kind, name, operation);
        }
      }
    }
    call(call const&) = delete;
    call& operator=(call const&) = delete;
    ~call() {
      if constexpr (check_level >= 2) {
        if (entered_ != nullptr) entered_->thread_.store(0, std::memory_order_relaxed);
      }
    }

   private:
    call_overlap* entered_ = nullptr;  // null: the call is inside another
  };

 private:
  std::atomic<unsigned long long> thread_ = 0;  // its number; 0: no call is going on
};

}  // namespace tidemark::detail
