// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_cache`: the plans that a planned arena keeps. Owns them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/detail/step_recorder.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// A plan, and what is known of its use.
struct kept_plan : plan_replayer {
  using plan_replayer::plan_replayer;

  std::size_t misses = 0;       // since it was made, less the steps that had none
  std::uint64_t used_last = 0;  // the number of the step
  kept_plan* next = nullptr;    // served the step after this one, the last time
  std::uint64_t served = 0;     // steps that it served wholly
  std::uint64_t given_up = 0;   // how often in a row, the last times it was used

  /// It was given up in this step. After twice in a row, and once more for each step that it has served, it
  /// rests, twice as long each time: to follow it until it misses takes longer than to follow none.
  void give_up(std::uint64_t step) noexcept {
    const std::uint64_t patience = 2 + (std::min)(served, max_patience);
    if (++given_up > patience)
      rests_until_ = step + (std::uint64_t{1} << (std::min)(given_up - patience, max_rest_log2));
  }
  [[nodiscard]] bool rests(std::uint64_t step) const noexcept { return given_up != 0 && step < rests_until_; }

 private:
  static constexpr std::uint64_t max_patience = 32, max_rest_log2 = 6;
  std::uint64_t rests_until_ = 0;  // the number of a step
};

/// Plans for steps of several kinds. One thread at a time.
///
/// Slots with bytes of their own lie below all others, in a zone that all plans have in common: what outlives a
/// step is in no other plan's way there. The n-th slot of a size has the same place in each plan, so that a
/// change of plan hands its block over. Only plans that have served a step, and the newest one, count for where
/// the zone ends, so that no step pays for one that came once. A plan that lacks places there has them above,
/// below its other slots. Where one plan goes on otherwise than another, both have a branch.
///
/// Invariants: `size <= max_size`; no two plans have the same requests.
class plan_cache {
 public:
  explicit plan_cache(std::size_t max_size) : max_size_{max_size} {}

  [[nodiscard]] std::size_t size() const noexcept { return plans_.size(); }
  [[nodiscard]] std::vector<std::unique_ptr<kept_plan>> const& plans() const noexcept { return plans_; }
  /// Copies, those used last first.
  [[nodiscard]] std::vector<step_plan> copies() const;

  /// The plan for a step of this number whose first request this is; null: each of those
  /// rests, if there are any.
  [[nodiscard]] kept_plan* choose(std::uint64_t step, std::size_t bytes, std::size_t align) const noexcept;
  /// What a new plan is laid beside, of the plans that are kept. The spans are valid until the next call.
  [[nodiscard]] plan_surroundings surroundings(kept_plan const* replaced = nullptr);
  /// A plan other than `current` for exactly what the step requested so far and this request; null: each of
  /// those rests, if there are any.
  [[nodiscard]] kept_plan* find_agreeing(std::uint64_t step, kept_plan const& current, std::size_t bytes,
                                         std::size_t align) const noexcept;

  /// The plan that must be erased before `made` is kept: one for the same requests, or the one unused for
  /// longest if there is no room. Null: none. After this `keep` does not throw. @throws std::bad_alloc
  [[nodiscard]] kept_plan* displaced_by(kept_plan& made);
  /// The plan unused for longest; null if there is room for another one.
  [[nodiscard]] kept_plan const* oldest_if_full() const noexcept;
  /// @pre no slot of a plan is live, because plans are moved
  void keep(std::unique_ptr<kept_plan> made) noexcept;
  /// Lays out the zone anew, and all plans above it. @pre no slot of a plan is live
  void arrange() noexcept;
  void erase(kept_plan& gone) noexcept;
  /// A step has ended that followed the plan, or was recorded for it.
  void record_use(kept_plan& plan) noexcept {
    if (last_used_ != nullptr) last_used_->next = &plan;
    last_used_ = &plan;
  }

 private:
  void find_branches() noexcept;

  std::size_t max_size_;
  std::size_t zone_end_ = 0;                       // of the plans that count
  std::vector<std::unique_ptr<kept_plan>> plans_;  // by age
  std::vector<step_plan const*> alike_;            // of `surroundings`
  kept_plan* last_used_ = nullptr;
};

}  // namespace tidemark::detail
