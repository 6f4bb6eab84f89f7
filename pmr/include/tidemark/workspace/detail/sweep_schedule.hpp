// SPDX-License-Identifier: Apache-2.0
/// @file
/// `sweep_schedule`: the ticks of the background sweeper, and what they request. Owns nothing.
#pragma once

#include <cstdint>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark::detail {

/// What the background sweeper requests of every workspace.
struct sweep_request {
  std::uint64_t tick;  // the newest
  bool trims;
  bool compacts;
  compact_options compaction;
};

/// Counts ticks, and knows what each one is for. The count of ticks is outside, where each workspace compares
/// it, without a lock, with the last tick that it has served.
///
/// Invariant: a workspace that has served tick `t` finds in `since(t)` all that later ones request. Any
/// thread; O(1).
template <class Sync>
class basic_sweep_schedule {
 public:
  using tick_count = Sync::template atomic<std::uint64_t>;

  /// As after `set(trim_every, {})`.
  basic_sweep_schedule(tick_count& newest, unsigned trim_every) noexcept
      : newest_{newest}, trim_every_{trim_every} {}

  /// From now on every so many ticks trim, counted from here; 0: none does.
  void set(unsigned trim_every, compact_options const& compaction) noexcept {
    const std::scoped_lock lock{mutex_};
    trim_every_ = trim_every;
    compaction_ = compaction;
    ticks_ = 0;
  }
  /// What was requested and not served is not requested any more.
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
  /// All that was requested after a tick.
  [[nodiscard]] sweep_request since(std::uint64_t served) noexcept {
    const std::scoped_lock lock{mutex_};
    return {.tick = newest_.load(std::memory_order_relaxed),
            .trims = trim_tick_ > served,
            .compacts = compact_tick_ > served,
            .compaction = compaction_};
  }

 private:
  tick_count& newest_;  // changes with the lock held
  Sync::mutex mutex_;   // for what follows; held for a few instructions
  unsigned trim_every_;
  compact_options compaction_;
  unsigned ticks_ = 0;              // since `set`
  std::uint64_t trim_tick_ = 0;     // the newest tick that trims; 0: there is none to serve
  std::uint64_t compact_tick_ = 0;  // … that compacts
};

}  // namespace tidemark::detail
