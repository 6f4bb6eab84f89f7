// SPDX-License-Identifier: Apache-2.0
/// @file
/// `sweep_schedule`: the ticks of the background sweeper and their requests. Owns nothing.
#pragma once

#include <cstdint>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark::detail {

/// Request of the background sweeper to every workspace.
struct sweep_request {
  std::uint64_t tick;  // newest tick
  bool trims;
  bool compacts;
  compact_options compaction;
};

/// Counts ticks and records the requests of each tick. The tick count is outside: each workspace compares it
/// without a lock with the last tick that it served.
///
/// Invariant: `since(t)` has all requests after tick `t`. Thread-safe; O(1).
template <class Sync>
class basic_sweep_schedule {
 public:
  using tick_count = Sync::template atomic<std::uint64_t>;

  /// Makes the state after `set(trim_every, {})`.
  basic_sweep_schedule(tick_count& newest, unsigned trim_every) noexcept
      : newest_{newest}, trim_every_{trim_every} {}

  /// Makes every `trim_every`-th tick trim, counted from this call; 0: no tick trims.
  void set(unsigned trim_every, compact_options const& compaction) noexcept {
    const std::scoped_lock lock{mutex_};
    trim_every_ = trim_every;
    compaction_ = compaction;
    ticks_ = 0;
  }
  /// Cancels the requests that are not served.
  void withdraw() noexcept {
    const std::scoped_lock lock{mutex_};
    trim_tick_ = compact_tick_ = 0;
  }
  void tick() noexcept {
    const std::scoped_lock lock{mutex_};
    compact_tick_ = newest_.load(std::memory_order_relaxed) + 1;
    if (trim_every_ != 0 && ++ticks_ % trim_every_ == 0) trim_tick_ = compact_tick_;
    newest_.store(compact_tick_, std::memory_order_relaxed);
  }
  /// Returns all requests after tick `served`.
  [[nodiscard]] sweep_request since(std::uint64_t served) noexcept {
    const std::scoped_lock lock{mutex_};
    return {.tick = newest_.load(std::memory_order_relaxed),
            .trims = trim_tick_ > served,
            .compacts = compact_tick_ > served,
            .compaction = compaction_};
  }

 private:
  tick_count& newest_;  // changed under the lock
  Sync::mutex mutex_;   // protects the members below; held for a few instructions
  unsigned trim_every_;
  compact_options compaction_;
  unsigned ticks_ = 0;              // ticks since `set`
  std::uint64_t trim_tick_ = 0;     // newest tick that trims; 0: none to serve
  std::uint64_t compact_tick_ = 0;  // newest tick that compacts; 0: none to serve
};

}  // namespace tidemark::detail
