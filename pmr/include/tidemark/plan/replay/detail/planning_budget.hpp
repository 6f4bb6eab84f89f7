// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planning_budget`: which steps are worth recording and planning. Owns no memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tidemark::detail {

/// A number that differs for steps that request different things, whatever the order in which their requests
/// are added.
class step_signature {
 public:
  void add(std::uint64_t request, std::size_t bytes, std::size_t align) noexcept {
    std::uint64_t mixed = (request * 0x9E3779B97F4A7C15U) ^ (bytes + align * 0xD6E8FEB86659FD93U);
    mixed = (mixed ^ (mixed >> 32)) * 0xBF58476D1CE4E5B9U;  // multipliers of splitmix64 and of 2^64 by phi
    sum_ += mixed ^ (mixed >> 29);
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return sum_; }

 private:
  std::uint64_t sum_ = 0;
};

/// Decides which steps are recorded, and which are planned.
///
/// To plan a step takes as long as to serve some dozen such steps without a plan, and to record one a few
/// times as long as not to. So both are paid for by plans that turn out to be of use. While few plans are
/// *unpaid*, which have not served `steps_to_pay` steps yet, each step that no plan serves is recorded and
/// planned at once. With more of them, a step is recorded only after its like was seen `sightings_needed`
/// times, which doubles with every second unpaid plan; meanwhile steps cost the addition of their requests to
/// a signature. One unpaid plan is forgiven after `steps_to_forgive` steps, the next one after twice as many, and
/// so on until a plan pays, so that a program that changes its ways is not given up for good.
///
/// One thread at a time.
class planning_budget {
 public:
  /// A plan has paid for itself with so many steps that it served.
  static constexpr std::uint64_t steps_to_pay = 16;

  // Steps are numbered from 0, and `step` is the number of the next one or the one that is open.

  /// Whether that step is recorded.
  [[nodiscard]] bool records(std::uint64_t step) noexcept {
    return unpaid_ < unpaid_at_once || may_record(step);
  }

  /// A step has ended that no plan served. @param misses for which it is blamed; with `max_misses` over all
  /// steps that were alike it is worth a plan @return whether to plan it now, which is only if it was
  /// recorded.
  [[nodiscard]] bool is_worth_a_plan(std::uint64_t step, std::uint64_t signature, std::uint64_t misses,
                                     std::uint64_t max_misses, bool is_recorded) noexcept;
  /// A plan was made.
  void on_spent(std::uint64_t step) noexcept {
    forgive(step);
    ++unpaid_;
  }
  /// A plan has served its `steps_to_pay`-th step.
  void on_paid() noexcept {
    unpaid_ -= unpaid_ > 0 ? 1 : 0;
    forgives_after_ = steps_to_forgive;
  }

 private:
  static constexpr std::uint64_t unpaid_at_once = 4;   // plans made before any has paid
  static constexpr std::uint64_t max_needed_log2 = 8;  // of `sightings_needed`
  static constexpr std::uint64_t steps_to_forgive = 256;
  static constexpr std::uint64_t max_steps_to_record = 16;  // in which a step comes that is expected

  struct sighting {
    std::uint64_t signature = 0, count = 0, misses = 0, last_step = 0;
  };

  [[nodiscard]] bool may_record(std::uint64_t step) noexcept;
  void forgive(std::uint64_t step) noexcept;
  [[nodiscard]] std::uint64_t sightings_needed() const noexcept {
    return unpaid_ < unpaid_at_once ? 1 : std::uint64_t{1} << (std::min)(unpaid_ / 2, max_needed_log2);
  }

  std::uint64_t unpaid_ = 0;
  std::uint64_t record_until_ = 0;  // the number of a step
  std::uint64_t forgave_at_ = 0;    // the same
  std::uint64_t forgives_after_ = steps_to_forgive;
  std::array<sighting, 32> seen_{};
};

}  // namespace tidemark::detail
