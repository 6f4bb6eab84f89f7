// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which workspace a function uses that is not given one: the thread's own, or that of the task it works for.
#pragma once

#include <memory>
#include <type_traits>

#include <tidemark/workspace.hpp>

namespace tidemark {
namespace detail {

inline constinit thread_local workspace* this_threads_workspace =
    nullptr;  // null: not yet made, and none bound
[[nodiscard]] workspace& make_this_threads_workspace();

}  // namespace detail

/// The calling thread's workspace: the one that was bound last, else its own, which is made with
/// `default_workspace_options()` at first need and given back when the thread ends, after the destructors of
/// its thread_local objects. The same one at each call. Thread-safe, O(1).
/// @throws std::bad_alloc if it has to be made and cannot.
[[nodiscard]] inline workspace& this_thread_workspace() {
  if (detail::this_threads_workspace == nullptr) [[unlikely]]
    return detail::make_this_threads_workspace();
  return *detail::this_threads_workspace;
}

/// Makes a workspace that of the calling thread as long as the binding lives.
///
/// For tasks that take turns on a thread, or move from one to another, as coroutines and fibers do: scopes of
/// a workspace must end in the reverse order of their opening, so each task has its own, and whoever resumes
/// the task binds it for that time.
/// ```cpp
/// void resume(task& t) {
///   workspace_binding bound{*t.workspace};  // functions in the task that ask for this_thread_workspace() get it
///   t.handle.resume();
/// }
/// ```
/// The workspace is handed over (`hand_over`) at both ends. Bindings nest. Made and destroyed by the same
/// thread; O(1).
class [[nodiscard]] workspace_binding {
 public:
  explicit workspace_binding(workspace& ws TIDEMARK_LIFETIMEBOUND) noexcept
      : bound_{&ws}, outer_{detail::this_threads_workspace} {
    ws.hand_over();
    detail::this_threads_workspace = &ws;
  }
  workspace_binding(workspace_binding const&) = delete;
  workspace_binding& operator=(workspace_binding const&) = delete;
  ~workspace_binding() {
    detail::this_threads_workspace = outer_;
    bound_->hand_over();
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
/// Move-only; a moved-from one has none. At its end the workspace is reset and waits for the next lease,
/// unless 64 wait already or a scope is open on it: then it is destroyed. What waits keeps its memory until
/// `release_waiting_workspaces`. Thread-safe: leases are taken and
/// ended on any thread.
class [[nodiscard]] workspace_lease {
 public:
  workspace_lease() noexcept = default;
  [[nodiscard]] workspace& operator*() const noexcept TIDEMARK_LIFETIMEBOUND { return *leased_; }
  [[nodiscard]] workspace* operator->() const noexcept TIDEMARK_LIFETIMEBOUND { return leased_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return leased_ != nullptr; }

 private:
  friend workspace_lease lease_workspace();
  struct give_back {
    void operator()(workspace* ws) const noexcept;
  };
  explicit workspace_lease(workspace* ws) noexcept : leased_{ws} {}

  std::unique_ptr<workspace, give_back> leased_;
};

/// The workspace that was given back last, else a new one with `default_workspace_options()`. Thread-safe,
/// O(1).
/// @throws std::bad_alloc.
[[nodiscard]] workspace_lease lease_workspace();

/// Destroys the workspaces that wait for a lease, whose memory goes to their upstreams. Thread-safe.
void release_waiting_workspaces() noexcept;

static_assert(!std::is_copy_constructible_v<workspace_lease> &&
              std::is_nothrow_move_constructible_v<workspace_lease>);
static_assert(!std::is_move_constructible_v<workspace_binding>, "bindings of a thread form a stack");

}  // namespace tidemark
