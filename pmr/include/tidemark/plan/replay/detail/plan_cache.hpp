// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_cache`: the plans that a planned arena keeps. Owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// A plan, and what is known of its use.
struct kept_plan : plan_replayer {
  using plan_replayer::plan_replayer;

  std::size_t misses = 0;       // since it was made, less the steps that had none
  std::uint64_t used_last = 0;  // the number of the step
  kept_plan* next = nullptr;    // served the step after this one, the last time
  bool was_given_up = false;    // the last time it was used
};

/// Plans for steps of several kinds. One thread at a time.
///
/// Invariants: `size <= max_size`; no two plans have the same requests.
class plan_cache {
 public:
  explicit plan_cache(std::size_t max_size) : max_size_{max_size} {}

  [[nodiscard]] std::size_t size() const noexcept { return plans_.size(); }
  [[nodiscard]] std::vector<std::unique_ptr<kept_plan>> const& plans() const noexcept { return plans_; }
  /// Copies, those used last first.
  [[nodiscard]] std::vector<step_plan> copies() const;

  /// The plan for a step whose first request this is; null: there is none.
  [[nodiscard]] kept_plan* choose(std::size_t bytes, std::size_t align) const noexcept;
  /// A plan other than `current` for exactly what the step requested so far and this request; null: there is
  /// none.
  [[nodiscard]] kept_plan* find_agreeing(kept_plan const& current, std::size_t bytes,
                                         std::size_t align) const noexcept;

  /// The plan that must be erased before `made` is kept: one for the same requests, or the one unused for
  /// longest if there is no room. Null: none. After this `keep` does not throw. @throws std::bad_alloc
  [[nodiscard]] kept_plan* displaced_by(kept_plan const& made);
  void keep(std::unique_ptr<kept_plan> made) noexcept { plans_.push_back(std::move(made)); }
  void erase(kept_plan& gone) noexcept;
  /// A step has ended that followed the plan, or was recorded for it.
  void record_use(kept_plan& plan) noexcept {
    if (last_used_ != nullptr) last_used_->next = &plan;
    last_used_ = &plan;
  }

 private:
  std::size_t max_size_;
  std::vector<std::unique_ptr<kept_plan>> plans_;  // by age
  kept_plan* last_used_ = nullptr;
};

}  // namespace tidemark::detail
