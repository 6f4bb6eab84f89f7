// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers that tell threads and resources apart; `thread_ownership`: which thread may use a resource that is
/// for one thread at a time; `call_overlap`: finds calls of several threads at once on such a resource.
#pragma once

#include <atomic>
#include <utility>

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// A number that no other thread of this process has, or had. Never 0.
[[nodiscard]] unsigned long long this_thread_number() noexcept;

/// A number that no other call in this process gets, from 1 on.
[[nodiscard]] unsigned long long next_identity() noexcept;

/// The thread that owns a resource: the first to use it, until the ownership is released.
class thread_ownership {
 public:
  /// The next thread to use the resource will own it.
  void release() noexcept { owner_ = 0; }

  /// Lets the calling thread use the resource for its owner while the result lives.
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
  /// @param kind of resource, @param name its name, @param operation what the calling thread does with it
  void require_owner(char const* kind, char const* name, char const* operation) noexcept {
    const unsigned long long thread = this_thread_number();
    if (owner_ == 0) owner_ = thread;
    if (owner_ == thread) return;
    report_violation(violation_kind::wrong_thread, name,
                     "%s '%s': %s on a thread that does not own the %s; see release_thread_ownership()", kind,
                     name, operation, kind);
  }

 private:
  unsigned long long owner_ = 0;  // 0: the next user's
};

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
