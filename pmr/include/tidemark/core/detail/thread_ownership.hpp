// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unique numbers for threads and resources. `thread_ownership`: the thread that may use a one-thread
/// resource. `call_overlap`: detects overlapping calls of several threads on such a resource.
#pragma once

#include <atomic>
#include <utility>

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// A number unique among all past and present threads of this process. Never 0.
[[nodiscard]] unsigned long long this_thread_number() noexcept;

/// A number that no other call in this process returns, from 1 on.
[[nodiscard]] unsigned long long next_identity() noexcept;

/// The thread that owns a resource: the first user, until the ownership is released.
class thread_ownership {
 public:
  /// Releases ownership: the next thread to use the resource owns it.
  void release() noexcept { owner_ = 0; }

  /// Lends the resource to the calling thread while the result lives.
  [[nodiscard]] auto lend() noexcept {
    struct loan {
      [[nodiscard]] loan(thread_ownership& of) noexcept : ownership{of}, owner{std::exchange(of.owner_, 0)} {}
      loan(loan const&) = delete;
      loan& operator=(loan const&) = delete;
      ~loan() { ownership.owner_ = owner; }
      thread_ownership& ownership;
      unsigned long long owner;
    };
    return loan{*this};
  }

  /// Reports a violation if another thread owns the resource.
  /// @param kind kind of the resource, @param name its name, @param operation the attempted operation
  void require_owner(char const* kind, char const* name, char const* operation) noexcept {
    const unsigned long long thread = this_thread_number();
    if (owner_ == 0) owner_ = thread;
    if (owner_ == thread) return;
    report_violation(violation_kind::wrong_thread, name,
                     "%s '%s': %s on a thread that does not own the %s; see release_thread_ownership()", kind,
                     name, operation, kind);
  }

 private:
  unsigned long long owner_ = 0;  // 0: not owned
};

/// The thread inside a call of a resource. Threads may take turns, unlike with `thread_ownership`. Checked at
/// level 2 only; below that a call compiles to nothing.
///
/// Relaxed, so that it orders no calls: a data race stays a race, which ThreadSanitizer reports.
class call_overlap {
 public:
  /// A call, from construction to destruction. Calls may nest on one thread.
  class call {
   public:
    /// Reports a violation if another thread is inside a call. @param operation the attempted operation
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
    call_overlap* entered_ = nullptr;  // null: nested inside another call
  };

 private:
  std::atomic<unsigned long long> thread_ = 0;  // number of the thread; 0 outside all calls
};

}  // namespace tidemark::detail
