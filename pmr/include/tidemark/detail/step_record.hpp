// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_record`: what a step asked for and when, in order. Owns its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <tidemark/plan_options.hpp>
#include <tidemark/step_plan.hpp>

namespace tidemark::detail {

/// The blocks that a step took, each with the times of its allocation and deallocation, in requests.
///
/// Those of the fallback are noted as they come and go; those that a plan served are added at the end, from
/// the plan's own account. Blocks of the fallback that outlive their step are followed through the next one:
/// whether the next of their kind was asked for before they were given back says how many are live at once.
///
/// One thread at a time.
class step_record {
 public:
  using request_time = std::uint64_t;
  struct entry {
    request_time born = 0;
    request_time died = 0;  // 0: it is live
    std::size_t bytes = 0;
    std::size_t align = 1;
  };

  /// The step has ended, and another may begin.
  void next_step() noexcept;
  /// A block of the fallback came. Where there is no memory to note it, the record is not complete.
  void came(void const* block, entry const& what) noexcept;
  /// A block goes back to the fallback.
  void goes(void const* block, request_time now) noexcept {
    if (!live_.empty()) note_death(block, now);
  }
  /// A block that a plan served. @throws std::bad_alloc
  void add(entry const& what) { entries_.push_back(what); }
  /// Whether nothing is missing, and there is something.
  [[nodiscard]] bool is_complete() const noexcept { return complete_ && !entries_.empty(); }

  /// Whether there are blocks of the step before to compare with.
  [[nodiscard]] bool has_carried() const noexcept { return !carried_.empty(); }
  /// Whether a block of the step before was still live when one of that size was asked for, which takes its
  /// place as that of the same size before took another's. To be asked in order, once for each block that
  /// outlives the step.
  [[nodiscard]] bool overlaps_carried(std::size_t bytes, request_time born) noexcept;

  /// Bytes that no block of a plan may have.
  struct obstacle {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  /// Where the blocks of such a step best lie: below all others the ones that outlive it. The plan is valid.
  /// @param slots_max of one that outlives the step
  /// @param obstacles by offset, apart from each other, at multiples of the alignment
  /// @throws as `make_plan`; std::bad_alloc if the record is not complete.
  [[nodiscard]] step_plan plan_it(plan_options const& options, std::size_t slots_max = 1,
                                  std::span<obstacle const> obstacles = {});

 private:
  struct carried_block {
    entry what;
    std::size_t heirs = 0;  // of the first of a size: how many of it `overlaps_carried` was asked for
  };
  struct place {
    std::size_t index;  // in `entries_`, or in `carried_`
    bool is_carried;
  };
  void note_death(void const* block, request_time now) noexcept;

  std::vector<entry> entries_;
  std::vector<carried_block> carried_;           // by size, and then by birth
  std::unordered_map<void const*, place> live_;  // blocks of the fallback, of this step and the one before
  bool complete_ = true;
};

/// The same plan with one more slot for each of these requests, whose blocks outlive the step: behind the
/// others of such requests. @pre they do
[[nodiscard]] step_plan with_more_slots(step_plan const& plan, std::span<std::size_t const> requests);

}  // namespace tidemark::detail
