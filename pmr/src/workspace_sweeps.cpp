// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace_sweeps.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/detail/workspace_core.hpp>

#include "workspace_registry.hpp"

namespace tidemark {
namespace {

using detail::workspace_core;

struct workspace_list {
  std::mutex mutex;  // for what follows; held for a few instructions, but for a tick
  workspace_core* first = nullptr;
  sweep_options options;
  unsigned ticks = 0;  // since the sweeper was last enabled
};

// Neither is ever destroyed: workspaces of other threads may live as long as the process.
workspace_list& workspaces() {
  static auto* const all = new workspace_list;
  return *all;
}

struct sweeper {
  std::mutex mutex;  // one change at a time; never taken under the list's
  std::jthread thread;
};
sweeper& the_sweeper() {
  static auto* const one = new sweeper;
  return *one;
}

constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours{24 * 365};

void tick_until_stopped(std::stop_token const& stop, std::chrono::nanoseconds interval) {
  interval = std::min(interval, longest_wait);  // the time when it ends has to be a number
  std::mutex mutex;
  std::condition_variable_any timer;
  std::unique_lock lock{mutex};
  while (!timer.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested()) {
    tick_workspace_sweeps();
  }
}

}  // namespace

void detail::register_workspace(workspace_core& workspace) noexcept {
  workspace_list& all = workspaces();
  const std::scoped_lock lock{all.mutex};
  workspace.next_swept = all.first;
  workspace.swept_link = &all.first;
  if (all.first != nullptr) all.first->swept_link = &workspace.next_swept;
  all.first = &workspace;
}

void detail::unregister_workspace(workspace_core& workspace) noexcept {
  const std::scoped_lock lock{workspaces().mutex};
  if (workspace.swept_link == nullptr) return;
  *workspace.swept_link = workspace.next_swept;
  if (workspace.next_swept != nullptr) workspace.next_swept->swept_link = workspace.swept_link;
  workspace.swept_link = nullptr;
}

compact_options detail::sweep_compaction() noexcept {
  const std::scoped_lock lock{workspaces().mutex};
  return workspaces().options.compaction;
}

void enable_workspace_sweeps(sweep_options const& options) {
  if (options.interval <= std::chrono::nanoseconds::zero()) {
    throw std::invalid_argument{"the interval of workspace sweeps is " +
                                std::to_string(options.interval.count()) + " ns, and must be more than 0"};
  }
  const std::scoped_lock change{the_sweeper().mutex};
  std::jthread started{
      [interval = options.interval](std::stop_token const& stop) { tick_until_stopped(stop, interval); }};
  {
    const std::scoped_lock lock{workspaces().mutex};
    workspaces().options = options;
    workspaces().ticks = 0;
  }
  the_sweeper().thread = std::move(started);  // ends the one before, and waits for it
}

void disable_workspace_sweeps() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  the_sweeper().thread = {};
  const std::scoped_lock lock{workspaces().mutex};
  for (workspace_core* one = workspaces().first; one != nullptr; one = one->next_swept) {
    one->sweep_requests.store(0, std::memory_order_relaxed);
  }
}

bool workspace_sweeps_enabled() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  return the_sweeper().thread.joinable();
}

void tick_workspace_sweeps() noexcept {
  workspace_list& all = workspaces();
  const std::scoped_lock lock{all.mutex};
  const unsigned every = all.options.trim_every;
  const bool trims = every != 0 && ++all.ticks % every == 0;
  const unsigned wanted = workspace_core::wants_compact | (trims ? workspace_core::wants_trim : 0);
  for (workspace_core* one = all.first; one != nullptr; one = one->next_swept) {
    one->sweep_requests.fetch_or(wanted, std::memory_order_release);
  }
}

}  // namespace tidemark
