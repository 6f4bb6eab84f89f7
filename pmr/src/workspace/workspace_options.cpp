// SPDX-License-Identifier: Apache-2.0
// The default options of workspaces, and the background sweeper: a thread that counts ticks, and the requests
// of the newest ticks. Each workspace compares the count with the last tick that it served, without a lock.
#include <tidemark/workspace/workspace_options.hpp>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/workspace/detail/workspace_core.hpp>

namespace tidemark {
namespace {

constexpr char const* ways_variable = "TIDEMARK_WORKSPACE_CACHE_WAYS";

// NOLINTNEXTLINE(concurrency-mt-unsafe): as documented
char const* ways_of_environment() { return std::getenv(ways_variable); }

// Reads the variable. Returns false if its text is wrong.
bool read_ways(unsigned& ways) {
  char const* const text = ways_of_environment();
  if (text == nullptr || *text == '\0') return true;
  unsigned read = unlimited_cache_ways;
  if (std::string_view{text} != "unlimited") {
    char const* const end = text + std::strlen(text);
    const auto [parsed, error] = std::from_chars(text, end, read);
    if (error != std::errc{} || parsed != end || read > detail::max_cache_ways || read < 1) return false;
  }
  ways = read;
  return true;
}

struct shared_defaults {
  detail::fork_safe<> mutex;
  workspace_options options;
  bool must_warn = !read_ways(options.cache_ways);
};
shared_defaults& defaults() {
  static auto& shared = *new detail::until_unload<shared_defaults>;
  return shared.value;
}

struct sweeper {
  sweeper() noexcept { mutex.adapt_with(*this); }
  // The child does not have the thread and can neither join nor stop it.
  void adapt_to_child() noexcept { lost = thread.release(); }
  void stop_threads() noexcept { thread.reset(); }

  detail::fork_safe<> mutex;             // protects all members; no thread is joined under it
  std::unique_ptr<std::jthread> thread;  // null while sweeps are disabled
  std::jthread* lost = nullptr;          // the thread of the parent process, which cannot be joined
  sweep_options options;
  unsigned ticks = 0;              // ticks since `enable_workspace_sweeps`
  std::uint64_t trim_tick = 0;     // newest tick that trims; 0: none to serve
  std::uint64_t compact_tick = 0;  // newest tick that compacts; 0: none to serve
};
sweeper& the_sweeper() {
  static auto& one = *new detail::until_unload<sweeper>;  // workspaces may live as long as the process
  return one.value;
}

constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours{24 * 365};

}  // namespace

workspace_options default_workspace_options() {
  std::unique_lock lock{defaults().mutex};
  const workspace_options options = defaults().options;
  const bool must_warn = std::exchange(defaults().must_warn, false);
  lock.unlock();  // the handler may make workspaces
  if (must_warn) {
    detail::report_variable(ways_variable, "%s is '%s', which is not 1 to 16 or \"unlimited\"; it is ignored",
                            ways_variable, ways_of_environment());
  }
  return options;
}

void set_default_workspace_options(workspace_options const& options) {
  detail::require_power_of_two("workspace", options.name, options.alignment);
  const std::scoped_lock lock{defaults().mutex};
  defaults().options = options;
  defaults().options.name = detail::name_or(options.name, workspace_options{}.name);
}

// ---- sweeps --------------------------------------------------------------------------------------------

void detail::workspace_core::sweep() noexcept {
  const outside_use own{*this};
  sweeper& all = the_sweeper();
  std::unique_lock lock{all.mutex};
  const std::uint64_t served = std::exchange(served_tick_, sweep_ticks.load(std::memory_order_relaxed));
  const bool trims = all.trim_tick > served, compacts = all.compact_tick > served;
  const compact_options bounds = all.options.compaction;
  lock.unlock();
  if (!options_.sweeps) return;
  if (trims) trim_to_recent_peak();
  if (compacts) compact(bounds, true);
}

void enable_workspace_sweeps(sweep_options const& options) {
  if (options.interval <= std::chrono::nanoseconds::zero()) {
    throw std::invalid_argument{"the interval of workspace sweeps is " +
                                std::to_string(options.interval.count()) + " ns, and must be more than 0"};
  }
  const auto interval = std::min(options.interval, longest_wait);  // keeps the end time representable
  auto changed = std::make_unique<std::jthread>([interval](std::stop_token const& stop) {
    std::mutex mutex;
    std::condition_variable_any timer;
    std::unique_lock lock{mutex};
    while (!timer.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested())
      tick_workspace_sweeps();
  });
  // The previous thread ends in `changed`, without the lock.
  const std::scoped_lock lock{the_sweeper().mutex};
  the_sweeper().options = options;
  the_sweeper().ticks = 0;
  the_sweeper().thread.swap(changed);
}

void disable_workspace_sweeps() noexcept {
  {
    std::unique_ptr<std::jthread> ended;  // joined without the lock, which its last tick may take
    const std::scoped_lock lock{the_sweeper().mutex};
    ended.swap(the_sweeper().thread);
  }
  const std::scoped_lock lock{the_sweeper().mutex};
  the_sweeper().trim_tick = the_sweeper().compact_tick = 0;
}

bool workspace_sweeps_enabled() noexcept {
  const std::scoped_lock lock{the_sweeper().mutex};
  return the_sweeper().thread != nullptr;
}

void tick_workspace_sweeps() noexcept {
  sweeper& all = the_sweeper();
  const std::scoped_lock lock{all.mutex};
  all.compact_tick = detail::sweep_ticks.load(std::memory_order_relaxed) + 1;
  const unsigned trim_every = all.options.trim_every;
  if (trim_every != 0 && ++all.ticks % trim_every == 0) all.trim_tick = all.compact_tick;
  detail::sweep_ticks.store(all.compact_tick, std::memory_order_relaxed);
}

}  // namespace tidemark
