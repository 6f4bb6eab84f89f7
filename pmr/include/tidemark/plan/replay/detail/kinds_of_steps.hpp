// SPDX-License-Identifier: Apache-2.0
/// @file
/// `kinds_of_steps`: the kinds of steps that a planned arena knows, each with its plan. Owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include <tidemark/plan/replay/detail/learned_step.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>

namespace tidemark::detail {

/// Debt of a kind of step for each plan that is made for it, and the debt from which on the kind rests.
inline constexpr std::size_t debt_of_plan = 8, max_debt = 4 * debt_of_plan;

/// A kind of step.
struct kind_of_step {
  std::uint64_t kind = 0;
  learned_step learned{};                 // NOLINT(readability-redundant-member-init): GCC warns without
  std::unique_ptr<plan_replayer> plan{};  // of `learned`; null: not yet planned
  std::size_t misses = 0;                 // since `learned` was a new sequence, less the steps that had none
  std::size_t more_due = 0;               // steps in which a request more than the plan has makes a new plan
  std::size_t loose_steps = 0;            // in a row, for which the plan had far too much
  std::size_t early_steps = 0;            // in a row, in which a block that should outlive its step did not
  std::size_t plans_made = 0;             // of this kind
  std::size_t debt = 0;                   // `debt_of_plan` for each plan made, less the steps wholly planned
  std::size_t rest_steps = 0;             // steps to come that are not recorded
  bool has_rested = false;                // since the last plan was made
  bool was_matched = false;               // a step has followed the plan, and needed most of it
  bool keeps_outliving = false;           // blocks that were live at the end of their step are never planned
};

/// Kinds of steps, the one used last first. One thread at a time.
///
/// Slots with bytes of their own lie below all others, in a zone that all plans have in common: a block that
/// outlives a step of one kind is in the way of no other kind. The n-th slot of a size and alignment has the
/// same place in each plan. Without a zone these slots have no bytes, and their blocks lie elsewhere.
///
/// Invariant: `size <= max_kinds`; each plan has the requests of `learned`.
class kinds_of_steps {
 public:
  kinds_of_steps(std::size_t max_kinds, bool has_zone) noexcept
      : max_kinds_{max_kinds}, has_zone_{has_zone} {}

  /// A kind that becomes the one used last; null if it is not known.
  [[nodiscard]] kind_of_step* find(std::uint64_t kind) noexcept;
  /// A new kind. If there is no room it replaces the kind used least recently, and inherits twice its debt.
  /// @pre it is not known @throws std::bad_alloc with nothing changed
  [[nodiscard]] kind_of_step& add(std::uint64_t kind);
  [[nodiscard]] std::list<kind_of_step> const& all() const noexcept { return kinds_; }

  /// Lays out the zone anew, and all plans above it. @pre no slot of a plan is live
  void lay_out() noexcept;
  /// Bytes of the zone.
  [[nodiscard]] std::size_t zone_end() const noexcept { return zone_end_; }

 private:
  std::size_t max_kinds_;
  bool has_zone_;
  std::size_t zone_end_ = 0;
  std::list<kind_of_step> kinds_;  // by use
};

}  // namespace tidemark::detail
