// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_recorder`: what a step requested and when, in order. Owns its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/plan/replay/plan_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// What a new plan is laid beside.
struct plan_surroundings {
  /// Offsets that no block may have which dies within the step, in order, apart from each other, at multiples
  /// of the plan's alignment.
  std::span<byte_range const> obstacles{};
  /// Obstacles below it are in no block's way.
  std::size_t zone_end = 0;
  /// Plans to share the first blocks with, as long as they are the same.
  std::span<step_plan const* const> alike{};
};

/// Where the blocks end that outlive the step, as a multiple of all alignments. @pre they lie below all others
[[nodiscard]] std::size_t outliving_end(step_plan const& plan) noexcept;
/// Whether blocks that outlive the step lie below all others: not in each plan of a file.
[[nodiscard]] bool outliving_lie_below(step_plan const& plan) noexcept;

/// The blocks of a step, each with the times of its allocation and deallocation, in requests.
///
/// Those of the fallback are recorded when they are allocated and deallocated; those that a plan served
/// are added at the end. Blocks of the fallback that outlive their step are followed through the next
/// one: whether the next of their size was requested before they were deallocated says how many are live
/// at once.
///
/// One thread at a time.
class step_recorder {
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
  /// A block of the fallback. Without memory to record it the record is not complete.
  void on_allocate(void const* block, entry const& what) noexcept;
  /// A block of the fallback, or an unknown one.
  void on_deallocate(void const* block, request_time now) noexcept {
    if (!live_.empty()) record_deallocation(block, now);
  }
  /// A block that a plan served. @throws std::bad_alloc
  void add(entry const& what) { entries_.push_back(what); }
  /// Recorded so far.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// Whether nothing is missing, and there is something.
  [[nodiscard]] bool is_complete() const noexcept { return complete_ && !entries_.empty(); }

  /// Whether there are blocks of the step before to compare with.
  [[nodiscard]] bool has_carried() const noexcept { return !carried_.empty(); }
  /// Whether a block of that size of the step before was still live at `born`, of several the next one in
  /// order of birth. To be called in order, once for each block that outlives the step.
  [[nodiscard]] bool overlaps_carried(std::size_t bytes, request_time born) noexcept;

  /// A plan of the step: below all others lie the blocks that outlive it.
  /// @param max_slots of one that outlives the step
  /// @throws as `make_plan`; std::bad_alloc if the record is not complete.
  [[nodiscard]] step_plan plan(plan_options const& options, std::size_t max_slots = 1,
                               plan_surroundings const& beside = {});

 private:
  void record_deallocation(void const* block, request_time now) noexcept;

  struct carried_block {
    entry what;
    std::size_t successors = 0;  // of the first of a size: how many `overlaps_carried` has compared
  };
  struct place {
    std::size_t index;  // in `entries_`, or in `carried_`
    bool is_carried;
  };

  void carry_live() noexcept;
  [[nodiscard]] std::vector<lifetime> lifetimes(plan_options const& options);

  std::vector<entry> entries_;
  std::vector<carried_block> carried_;           // by size, and then by birth
  std::unordered_map<void const*, place> live_;  // blocks of the fallback, of this step and the one before
  bool complete_ = true;
};

/// The same plan with one more slot for each of these requests, above the others of such requests. @pre
/// their blocks outlive the step
[[nodiscard]] step_plan with_more_slots(step_plan const& plan, std::vector<std::size_t> requests);

}  // namespace tidemark::detail
