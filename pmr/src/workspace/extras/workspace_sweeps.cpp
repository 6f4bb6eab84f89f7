// SPDX-License-Identifier: Apache-2.0
#include <tidemark/workspace/workspace_options.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/workspace/detail/sweep_schedule.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark {
namespace {

using sweep_schedule = detail::basic_sweep_schedule<detail::std_sync>;
sweep_schedule& schedule() {
  // Workspaces may live as long as the process.
  static auto& one =
      *new detail::until_unload<sweep_schedule>{detail::sweep_ticks, sweep_options{}.trim_every};
  return one.value;
}

struct sweeper {
  sweeper() noexcept { mutex.adapt_with(*this); }
  // The child does not have the thread and can neither join nor stop it.
  void adapt_to_child() noexcept { lost.splice(lost.end(), thread); }
  // A lost thread cannot be joined.
  void stop_threads() noexcept { thread.clear(); }
  void detach() noexcept {
    for (std::jthread& each : lost) std::construct_at(&each);
  }

  std::list<std::jthread> thread;  // one element while sweeps are enabled
  std::list<std::jthread> lost;    // threads of parent processes; kept, because they own memory
  detail::fork_safe<> mutex;       // protects both lists; never locked under the schedule's mutex
};
sweeper& the_sweeper() {
  static auto& one = *new detail::until_unload<sweeper>;
  return one.value;
}

constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours{24 * 365};

void tick_until_stopped(std::stop_token const& stop, std::chrono::nanoseconds interval) {
  interval = std::min(interval, longest_wait);  // keeps the end time representable
  std::mutex mutex;
  std::condition_variable_any timer;
  std::unique_lock lock{mutex};
  while (!timer.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested()) {
    tick_workspace_sweeps();
  }
}

}  // namespace

detail::sweep_request detail::sweep_request_since(std::uint64_t served) noexcept {
  return schedule().since(served);
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
  schedule().set(options.trim_every, options.compaction);
  the_sweeper().thread.swap(started);  // ends the previous thread and waits for it
}

void disable_workspace_sweeps() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  the_sweeper().thread.clear();
  schedule().withdraw();
}

bool workspace_sweeps_enabled() noexcept {
  const std::scoped_lock change{the_sweeper().mutex};
  return !the_sweeper().thread.empty();
}

void tick_workspace_sweeps() noexcept { schedule().tick(); }

}  // namespace tidemark
