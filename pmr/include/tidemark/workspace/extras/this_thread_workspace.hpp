// SPDX-License-Identifier: Apache-2.0
/// @file
/// `this_thread_workspace`, `workspace_binding` and `workspace_lease`: the workspace of a thread or a task.
#pragma once

#include <memory>
#include <type_traits>

#include <tidemark/workspace/workspace.hpp>

namespace tidemark {
namespace detail {

// Null: not yet made, and no other bound. Visible, so that a program that hides its own symbols shares it
// with a shared library.
[[gnu::visibility("default")]] inline constinit thread_local workspace* this_threads_workspace = nullptr;
[[nodiscard]] workspace& make_this_threads_workspace();

}  // namespace detail

/// The calling thread's workspace: the one that was bound last, else its own, which is made with
/// `default_workspace_options()` by the first call and destroyed when the thread ends, after its thread_local
/// objects. The same one at each call. Thread-safe, O(1).
/// @throws std::bad_alloc if there is no memory to make it.
[[nodiscard]] inline workspace& this_thread_workspace() {
  if (detail::this_threads_workspace == nullptr) [[unlikely]]
    return detail::make_this_threads_workspace();
  return *detail::this_threads_workspace;
}

/// Makes a workspace that of the calling thread as long as the binding lives.
///
/// For tasks that take turns on a thread, or move from one to another, as coroutines and fibers do: scopes of
/// a workspace must end in the reverse order of their opening, so each task has its own, which is bound while
/// the task runs.
/// ```cpp
/// void resume(task& t) {
///   workspace_binding bound{*t.workspace};  // what this_thread_workspace() returns in the task
///   t.handle.resume();
/// }
/// ```
/// Both ends release the thread ownership of the workspace. Bindings nest. Made and destroyed by the same
/// thread; O(1).
class [[nodiscard]] workspace_binding {
 public:
  /// Makes `ws` the workspace of this thread. It must outlive the binding.
  [[nodiscard]] explicit workspace_binding(workspace& ws TIDEMARK_LIFETIMEBOUND) noexcept
      : bound_{&ws}, outer_{detail::this_threads_workspace} {
    ws.release_thread_ownership();
    detail::this_threads_workspace = &ws;
  }
  workspace_binding(workspace_binding const&) = delete;
  workspace_binding& operator=(workspace_binding const&) = delete;
  ~workspace_binding() {
    detail::this_threads_workspace = outer_;
    bound_->release_thread_ownership();
  }

 private:
  workspace* bound_;
  workspace* outer_;  // the one that was this thread's before
};

/// A workspace for one task, warm where another task has ended before. Owns it meanwhile.
///
/// ```cpp
/// struct task { workspace_lease workspace = lease_workspace(); ... };
/// ```
/// Move-only; a moved-from one is empty. At its end the workspace is reset and waits for the next lease,
/// unless 64 wait already or a scope is open on it: then it is destroyed. A waiting one keeps its memory
/// until `release_waiting_workspaces`. Thread-safe: leases begin and end on any thread.
class [[nodiscard]] workspace_lease {
 public:
  workspace_lease() noexcept = default;
  /// The workspace. @pre it was not moved from.
  [[nodiscard]] workspace& operator*() const noexcept TIDEMARK_LIFETIMEBOUND { return *leased_; }
  /// The same, for its members.
  [[nodiscard]] workspace* operator->() const noexcept TIDEMARK_LIFETIMEBOUND { return leased_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return leased_ != nullptr; }

 private:
  friend workspace_lease lease_workspace();
  explicit workspace_lease(workspace* ws) noexcept : leased_{ws, &end} {}
  static void end(workspace* ws) noexcept;

  std::unique_ptr<workspace, void (*)(workspace*) noexcept> leased_{nullptr, &end};
};

/// The workspace whose lease ended last, else a new one with `default_workspace_options()`. Thread-safe,
/// O(1).
/// @throws std::bad_alloc.
[[nodiscard]] workspace_lease lease_workspace();

/// Destroys the workspaces that wait for a lease. Thread-safe.
void release_waiting_workspaces() noexcept;

static_assert(!std::is_copy_constructible_v<workspace_lease> &&
              std::is_nothrow_move_constructible_v<workspace_lease>);
static_assert(!std::is_move_constructible_v<workspace_binding>, "bindings of a thread form a stack");

}  // namespace tidemark
