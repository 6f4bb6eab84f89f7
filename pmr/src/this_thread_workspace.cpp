// SPDX-License-Identifier: Apache-2.0
#include <tidemark/this_thread_workspace.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/detail/thread_owned.hpp>

namespace tidemark {
namespace {

constexpr std::size_t waiting_max = 64;

struct waiting_workspaces {
  std::mutex mutex;
  std::vector<std::unique_ptr<workspace>> all;
};
waiting_workspaces& waiting() {
  static auto* const workspaces = new waiting_workspaces;  // leases may end after statics are destroyed
  return *workspaces;
}

// The thread's own workspace. It forgets that it is the current one when it goes.
struct own_workspace {
  workspace ws;
  ~own_workspace() {
    if (detail::this_threads_workspace == &ws) detail::this_threads_workspace = nullptr;
  }
};

}  // namespace

workspace& detail::make_this_threads_workspace() {
  workspace& own = thread_owned<own_workspace>::get().ws;
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

void workspace_lease::give_back::operator()(workspace* ws) const noexcept {
  std::unique_ptr<workspace> leaving{ws};
  ws->hand_over();  // to this thread, which may not be the one that worked with it …
  try {
    ws->reset();
    ws->hand_over();  // … and from it to the next
    const std::scoped_lock lock{waiting().mutex};
    if (waiting().all.size() < waiting_max) waiting().all.push_back(std::move(leaving));
  } catch (...) {
    return;  // it is not kept where a scope is open on it, or where there is no memory for the list
  }
}

void release_waiting_workspaces() noexcept {
  std::vector<std::unique_ptr<workspace>> leaving;  // destroyed without the lock
  const std::scoped_lock lock{waiting().mutex};
  leaving.swap(waiting().all);
}

}  // namespace tidemark
