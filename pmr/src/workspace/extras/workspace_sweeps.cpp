// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/extras/workspace_sweeps.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark {
namespace {

struct sweep_schedule {
  sweep_options options;
  unsigned ticks = 0;           // since the sweeper was last enabled
  std::uint64_t trim_tick = 0;  // the newest of `detail::sweep_ticks` that trims; 0: there is none to serve
  std::uint64_t compact_tick = 0;  // … that compacts
  detail::fork_safe<> mutex;       // for all of it; held for a few instructions
};
sweep_schedule& schedule() {
  static auto* const one = new sweep_schedule;  // never destroyed: workspaces may live as long as the process
  return *one;
}

struct sweeper {
  sweeper() noexcept { mutex.adapt_with(*this); }
  // The child has no such thread, so that it can be neither joined nor stopped.
  void adapt_to_child() noexcept { lost.splice(lost.end(), thread); }

  std::list<std::jthread> thread;  // one while sweeps are enabled
  std::list<std::jthread> lost;    // of parent processes; kept, as they own memory
  detail::fork_safe<> mutex;       // for both; never locked under the schedule's
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

detail::sweep_request detail::sweep_request_since(std::uint64_t served) noexcept {
  sweep_schedule& now = schedule();
  const std::scoped_lock lock{now.mutex};
  return {.tick = sweep_ticks.load(std::memory_order_relaxed),
          .trims = now.trim_tick > served,
          .compacts = now.compact_tick > served,
          .compaction = now.options.compaction};
}

void enable_workspace_sweeps(sweep_options const& options) {
  if (options.interval <= std::chrono::nanoseconds::zero()) {
    throw std::invalid_argument{"the interval of workspace sweeps is " +
                                std::to_string(options.interval.count()) + " ns, and must be more than 0"};
  }
  const std::scoped_lock change{the_sweeper().mutex};
  std::list<std::jthread> started;
  started.emplace_back(
      [interval = options.interval](std::stop_token const& stop) { tick_until_stopped(stop, interval); });
  {
    const std::scoped_lock lock{schedule().mutex};
    schedule().options = options;
    schedule().ticks = 0;
  }
  the_sweeper().thread.swap(started);  // and ends the one before, and waits for it
}

void disable_workspace_sweeps() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  the_sweeper().thread.clear();
  const std::scoped_lock lock{schedule().mutex};
  schedule().trim_tick = schedule().compact_tick = 0;
}

bool workspace_sweeps_enabled() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  return !the_sweeper().thread.empty();
}

void tick_workspace_sweeps() noexcept {
  sweep_schedule& now = schedule();
  const std::scoped_lock lock{now.mutex};
  now.compact_tick = detail::sweep_ticks.load(std::memory_order_relaxed) + 1;
  const unsigned every = now.options.trim_every;
  if (every != 0 && ++now.ticks % every == 0) now.trim_tick = now.compact_tick;
  detail::sweep_ticks.store(now.compact_tick, std::memory_order_relaxed);
}

}  // namespace tidemark
