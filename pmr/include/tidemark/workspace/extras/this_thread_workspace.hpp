// SPDX-License-Identifier: Apache-2.0
/// @file
/// `this_thread_workspace` and `workspace_binding`: the workspace of a thread or a task.
#pragma once

#include <type_traits>

#include <tidemark/core/macros.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace tidemark {
namespace detail {

// Null if the thread has no workspace yet and no binding. The symbol is visible, because a program that hides
// its own symbols must share the variable with a shared library.
[[gnu::visibility("default")]] inline constinit thread_local workspace* this_threads_workspace = nullptr;
[[nodiscard]] workspace& make_this_threads_workspace();

}  // namespace detail

/// Returns the calling thread's workspace: the innermost bound workspace, else the thread's own.
///
/// The first call makes the thread's own workspace with `default_workspace_options()`. It is destroyed after
/// the thread's thread_local objects. Thread-safe, O(1).
/// @throws std::bad_alloc if there is no memory to make it.
[[nodiscard]] inline workspace& this_thread_workspace() {
  if (detail::this_threads_workspace == nullptr) [[unlikely]]
    return detail::make_this_threads_workspace();
  return *detail::this_threads_workspace;
}

/// Makes a workspace the calling thread's workspace while the binding exists.
///
/// Use it for tasks that share a thread or move between threads, such as coroutines and fibers. Scopes of a
/// workspace must end in the reverse order of their opening. Each task therefore has its own workspace, which
/// is bound while the task runs.
/// ```cpp
/// void resume(task& t) {
///   workspace_binding bound{*t.workspace};  // what this_thread_workspace() returns in the task
///   t.handle.resume();
/// }
/// ```
/// Construction and destruction release the thread ownership of the workspace. Bindings nest. The same thread
/// makes and destroys a binding; O(1).
class [[nodiscard(TIDEMARK_NAME_SCOPE)]] workspace_binding {
 public:
  /// Makes `ws` the workspace of this thread. `ws` must outlive the binding.
  [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit workspace_binding(workspace& ws TIDEMARK_LIFETIMEBOUND) noexcept
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
  workspace* outer_;  // previous workspace of the thread
};

static_assert(!std::is_move_constructible_v<workspace_binding>, "bindings of a thread form a stack");

}  // namespace tidemark
