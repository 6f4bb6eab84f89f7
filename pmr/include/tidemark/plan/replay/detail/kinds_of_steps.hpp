// SPDX-License-Identifier: Apache-2.0
/// @file
/// `kinds_of_steps`: the kinds of steps of a planned arena, each with its plan. Owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include <tidemark/plan/replay/detail/learned_step.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>

namespace tidemark::detail {

/// Debt of a kind of step for each new plan, and the debt at which the kind rests.
inline constexpr std::size_t debt_of_plan = 8, max_debt = 4 * debt_of_plan;

/// A kind of step.
struct kind_of_step {
  std::uint64_t kind = 0;
  learned_step learned{};                 // NOLINT(readability-redundant-member-init): GCC warns without
  std::unique_ptr<plan_replayer> plan{};  // plan of `learned`; null: not yet planned
  std::size_t misses = 0;       // misses since `learned` was a new sequence, minus the steps without a miss
  std::size_t more_due = 0;     // next steps in which an extra request makes a new plan
  std::size_t loose_steps = 0;  // consecutive steps that used far less than the plan
  std::size_t early_steps = 0;  // consecutive steps in which an outliving block died early
  std::size_t plans_made = 0;   // plans made for this kind
  std::size_t debt = 0;         // `debt_of_plan` for each new plan, minus the fully planned steps
  std::size_t rest_steps = 0;   // next steps that are not recorded
  bool has_rested = false;      // true if the kind has rested since its last plan
  bool was_matched = false;     // true if a step has followed the plan and needed most of it
  bool excludes_outliving = false;  // true if blocks that are live at the end of their step are never planned
};

/// Kinds of steps in the order of last use. Thread-safety: one thread at a time.
///
/// Slots with bytes of their own are below all others, in a prefix that all plans share. A block that
/// outlives a step of one kind is therefore in the way of no other kind. The n-th slot of a size and
/// alignment has the same place in each plan. Without a prefix these slots have no bytes, and their blocks
/// are elsewhere.
///
/// Invariants: `size <= max_kinds`; each plan has the requests of `learned`.
class kinds_of_steps {
 public:
  kinds_of_steps(std::size_t max_kinds, bool has_prefix) noexcept
      : max_kinds_{max_kinds}, has_prefix_{has_prefix} {}

  /// Returns a kind and makes it the most recently used; null if the kind is unknown.
  [[nodiscard]] kind_of_step* find(std::uint64_t kind) noexcept;
  /// Adds a kind. If the list is full, the new kind replaces the least recently used kind and inherits twice
  /// its debt. @pre The kind is unknown. @throws std::bad_alloc with nothing changed
  [[nodiscard]] kind_of_step& add(std::uint64_t kind);
  [[nodiscard]] std::list<kind_of_step> const& all() const noexcept { return kinds_; }

  /// Lays out the prefix and all plans above it. @pre No slot of a plan is live.
  void lay_out() noexcept;
  /// Returns the bytes of the prefix.
  [[nodiscard]] std::size_t prefix_end() const noexcept { return prefix_end_; }

 private:
  std::size_t max_kinds_;
  bool has_prefix_;
  std::size_t prefix_end_ = 0;
  std::list<kind_of_step> kinds_;  // most recently used first
};

}  // namespace tidemark::detail
