// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/extras/this_thread_workspace.hpp>

#include <memory>
#include <memory_resource>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_specific.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/pool/global_pool.hpp>

#include "../../core/idle_memory.hpp"

namespace tidemark {
namespace {

constexpr std::size_t max_waiting = 64;

struct waiting_workspaces {
  detail::fork_safe<> mutex;
  std::vector<std::unique_ptr<workspace>> all;
  pressure_subscription released = on_memory_pressure(release_waiting_workspaces);

  void detach() noexcept { all.clear(); }  // workspaces use other state of the library
};
waiting_workspaces& waiting() {
  static auto& workspaces = *new detail::until_unload<waiting_workspaces>;
  return workspaces.value;  // leases may end after statics are destroyed
}

// The thread's own workspace, which is current until another workspace is bound.
struct own_workspace {
  // The thread that signals pressure trims, and the upstream must permit that.
  own_workspace() {
    std::pmr::memory_resource* const upstream = ws.upstream_resource();
    if (upstream != &global_pool() && upstream != std::pmr::new_delete_resource()) return;
    trims = on_memory_pressure([this] { trim_if_idle(); });
  }
  // The pool would keep the freed memory until its threads call it, and is trimmed too.
  void trim_if_idle() noexcept {
    std::size_t bytes = 0;
    detail::trim_idle_memory([&] { bytes = detail::workspace_access::core(ws).trim_if_idle(); });
    if (bytes != 0 && ws.upstream_resource() == &global_pool()) (void)global_pool().trim();
  }

  workspace ws;
  pressure_subscription trims;

  ~own_workspace() {
    if (detail::this_threads_workspace == &ws) detail::this_threads_workspace = nullptr;
    ws.release_thread_ownership();  // another thread destroys it when the library is unloaded
  }
};

}  // namespace

workspace& detail::make_this_threads_workspace() {
  workspace& own = thread_specific<own_workspace>::get().ws;
  this_threads_workspace = &own;
  return own;
}

workspace_lease lease_workspace() {
  {
    const std::scoped_lock lock{waiting().mutex};
    if (!waiting().all.empty()) {
      std::unique_ptr<workspace> warm = std::move(waiting().all.back());
      waiting().all.pop_back();
      return workspace_lease{warm.release()};
    }
  }
  return workspace_lease{new workspace};
}

void workspace_lease::end(workspace* ws) noexcept {
  std::unique_ptr<workspace> leaving{ws};
  ws->release_thread_ownership();  // this thread may not be the owner …
  try {
    ws->reset();
    ws->release_thread_ownership();  // … and the next lease may be on another thread
    const std::scoped_lock lock{waiting().mutex};
    if (waiting().all.size() < max_waiting) waiting().all.push_back(std::move(leaving));
  } catch (...) {
    return;  // a scope is open, or there is no memory for the list: `ws` is destroyed
  }
}

void release_waiting_workspaces() noexcept {
  std::vector<std::unique_ptr<workspace>> leaving;  // destroyed without the lock
  const std::scoped_lock lock{waiting().mutex};
  leaving.swap(waiting().all);
}

}  // namespace tidemark
