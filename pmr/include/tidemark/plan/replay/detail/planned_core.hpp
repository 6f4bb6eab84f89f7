// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_core`: the part of a planned arena that does not depend on the kind of memory. Owns plans, but no
/// memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/plan/replay/detail/foreign_blocks.hpp>
#include <tidemark/plan/replay/detail/kinds_of_steps.hpp>
#include <tidemark/plan/replay/detail/learned_step.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/detail/planned_region.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

inline constexpr char const* planned_kind = "planned_arena";  // name in messages

/// Runs a step: finds the plan of its kind, replays the plan, records requests without a slot, and makes a
/// new plan at the end if the step differed.
///
/// If the region's memory comes from the fallback, the region is *borrowed*: one block of the fallback from
/// the first request of a planned step to its end, or to the death of its last block. Blocks that outlive
/// their step are then in the fallback too, and their slots have no bytes.
///
/// Invariants, checked by `check_invariants()`: those of `plan_replayer`, `kinds_of_steps` and
/// `planned_arena_stats`; foreign blocks are sorted; foreign blocks and live slots of the plan do not overlap
/// and are in committed memory.
///
/// Thread-safety: one thread at a time.
class planned_core {
 public:
  /// @param region memory of the plans; must outlive all blocks
  planned_core(planned_region& region, bool host_accessible, planned_arena_options const& options);
  planned_core(planned_core const&) = delete;
  planned_core& operator=(planned_core const&) = delete;
  ~planned_core();

  [[nodiscard, gnu::returns_nonnull]] void* allocate(std::size_t bytes, std::size_t align) {
    const call_overlap::call here{calls_, planned_kind, options_.name, "allocate"};
    if (check_level >= 2 && !std::has_single_bit(align)) return allocate_slow(bytes, align);
    if (plan_replayer::slot* const next = fast_plan_->next_in_order(bytes, align)) [[likely]]
      return fast_plan_->assign_next(*next, bytes, now_);
    return allocate_slow(bytes, align);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    const call_overlap::call here{calls_, planned_kind, options_.name, "deallocate"};
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (check_level < 2 && fast_plan_->deallocate_in_order(address, now_)) [[likely]]
      return;
    deallocate_out_of_order(block, bytes, align);
  }

  // `basic_planned_arena` documents the other functions.
  /// @param opened core of the open step; null after the core's destruction
  void begin(planned_core*& opened, std::uint64_t kind);
  void end_step() noexcept;
  void use(step_plan plan, std::uint64_t kind);
  [[nodiscard]] std::vector<step_plan> plans() const;
  std::size_t trim() noexcept;
  [[nodiscard]] planned_arena_stats stats() const noexcept;
  [[nodiscard]] planned_arena_options const& options() const noexcept { return options_; }
  void check_invariants() const noexcept;

 private:
  using request_time = plan_replayer::request_time;

  /// Source of the memory of the open step.
  enum class server : std::uint8_t {
    fallback,          // the step has no plan, or no memory for its plan
    plan,              // the plan, and the fallback for requests without a slot
    plan_uncommitted,  // the plan, if there is memory for it at the first request
    plan_dropped,      // the fallback, because the plan missed too many requests
  };

  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* find_block(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* assign_slot(std::size_t bytes, std::size_t align, std::size_t& request);
  [[nodiscard]] std::size_t find_request(std::size_t bytes) const noexcept;
  void on_conflict(std::size_t request) noexcept;
  void deallocate_out_of_order(void* block, std::size_t bytes, std::size_t align) noexcept;
  void reclaim_block(void* block, std::size_t bytes, std::size_t align) noexcept;
  TIDEMARK_COLD void deallocate_foreign(void* block, std::size_t bytes) noexcept;

  TIDEMARK_COLD void set_plan(plan_replayer& plan) noexcept;
  void switch_to(std::uint64_t kind);
  void detach_plan();
  void commit_plan();
  // The fast path is off while foreign blocks are in the way, because each slot must be compared with them.
  void update_fast_path() noexcept;

  void learn_from_step();
  void learn_from_replay();
  void plan_again(kind_of_step& kind, learned_step const& before);
  [[nodiscard]] bool must_learn_later(std::uint64_t requests) const noexcept;
  void learn_from_previous_step();
  [[nodiscard]] learned_step learn_early_deaths(kind_of_step const& kind) const;
  [[nodiscard]] learned_step learn_deaths(kind_of_step& kind);
  [[nodiscard]] step_plan plan_beside(learned_step const& learned, kind_of_step const& kind,
                                      request_time begin) const;
  void plan_anew(kind_of_step& kind, learned_step learned, request_time begin);
  void install_plan(kind_of_step& kind, step_plan made);
  [[nodiscard]] bool is_unused() const noexcept { return foreign_.live() == 0 && plan_->used_blocks() == 0; }
  template <class Visit>
  void each_block_in_use(Visit visit) const;
  [[nodiscard]] std::size_t used_bytes_end() const noexcept;
  [[nodiscard]] std::size_t highest_plan() const noexcept;

  plan_replayer* fast_plan_ = &no_plan_;  // plan of the fast path: `plan_`, or no plan if observed
  plan_replayer* plan_ = &no_plan_;       // current plan
  request_time now_ = 1;                  // number of the next request, counted over all steps

  planned_region& region_;
  planned_arena_options options_;
  observer_pointer observer_;  // null: none
  bool host_accessible_;
  bool is_borrowed_;  // the region is one block of the fallback during a step
  kinds_of_steps kinds_;
  kind_of_step* kind_ = nullptr;  // kind of the open or previous step; null before the first step
  foreign_blocks foreign_;
  step_recorder recorder_;
  planned_core** step_ = nullptr;  // core pointer of the open step; null: no step is open
  server server_ = server::fallback;
  bool is_recorded_ = false;           // a step is open and recorded
  bool is_refused_ = false;            // a request of this step has thrown
  bool has_missing_slots_ = false;     // a request of this step found all of its slots taken by earlier steps
  bool has_warned_ = false;            // the warning about a missing range was sent
  std::size_t misses_in_a_row_ = 0;    // current consecutive misses of this step
  std::uint64_t step_unknown_ = 0;     // requests of this step that resemble none of the plan's next requests
  std::uint64_t step_conflicts_ = 0;   // requests of this step whose bytes had another block
  std::uint64_t step_fallback_ = 0;    // requests of this step to the fallback
  request_time begin_ = 0;             // beginning of this step
  request_time last_begin_ = 0;        // beginning of the previous step
  kind_of_step* last_kind_ = nullptr;  // kind of the previous step, if `learn_from_previous_step` is due
  std::size_t trims_due_ = 0;          // number of next step ends that trim the fallback
  std::size_t fallback_bytes_ = 0;  // bytes of requests of steps to the fallback since a trim was scheduled
  bool has_returned_ = false;       // true if a block was returned to the fallback since its trim
  std::uint64_t steps_ = 0, planned_steps_ = 0, partly_planned_steps_ = 0;
  std::uint64_t fallback_allocations_ = 0, outside_allocations_ = 0, misses_ = 0, plans_made_ = 0;
  plan_replayer no_plan_{step_plan{}};
  call_overlap calls_;
};

}  // namespace tidemark::detail
