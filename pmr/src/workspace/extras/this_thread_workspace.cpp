// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/extras/this_thread_workspace.hpp>

#include <memory_resource>

#include <tidemark/core/detail/thread_specific.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/pool/global_pool.hpp>

#include "../../core/idle_memory.hpp"

namespace tidemark {
namespace {

// The thread's own workspace, which is current until another workspace is bound.
struct own_workspace {
  // The thread that signals pressure trims, and the upstream must permit that.
  own_workspace() {
    std::pmr::memory_resource* const upstream = ws.upstream_resource();
    if (upstream != &global_pool() && upstream != std::pmr::new_delete_resource()) return;
    detail::workspace_access::core(ws).permit_idle_trims();
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

}  // namespace tidemark
