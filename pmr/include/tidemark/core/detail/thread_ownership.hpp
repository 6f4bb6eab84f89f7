// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_ownership`: which thread may use a resource that is for one thread at a time.
#pragma once

#include <utility>

#include <tidemark/core/detail/identity.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

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

}  // namespace tidemark::detail
