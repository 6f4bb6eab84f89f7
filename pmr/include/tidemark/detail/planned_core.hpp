// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_core`: what a `planned_arena` does, for memory of any kind. Owns plans, and no memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include <tidemark/detail/planned_region.hpp>
#include <tidemark/detail/step_record.hpp>
#include <tidemark/detail/step_run.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/planned_arena_options.hpp>
#include <tidemark/planned_arena_stats.hpp>
#include <tidemark/step_plan.hpp>
#include <tidemark/violation.hpp>

namespace tidemark::detail {

/// Chooses plans, follows them, notices where a step leaves them, and plans anew.
///
/// A *stranger* is a live block of the region that the current plan does not know as one of its slots: of
/// another plan, or of an earlier step of the same one. While there are any, no slot is handed out but by the
/// slow path, which looks at them.
///
/// Invariants, checked by `check_invariants()`: those of `step_run` and of `planned_arena_stats`; strangers
/// are sorted, and no two of them and of the current plan's live slots overlap; all lie in committed memory.
///
/// One thread at a time.
class planned_core {
 public:
  /// @throws std::invalid_argument for impossible options.
  planned_core(planned_region& region, planned_arena_options const& options,
               std::pmr::memory_resource* fallback);
  planned_core(planned_core const&) = delete;
  planned_core& operator=(planned_core const&) = delete;
  ~planned_core();

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align) {
    if (check_level >= 2 && !std::has_single_bit(align)) return allocate_slow(bytes, align);
    if (step_run::slot* const next = current_->next_in_turn(bytes, align)) [[likely]]
      return current_->take(*next, bytes, now_);
    return allocate_out_of_turn(bytes, align);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (check_level < 2 && current_->give_in_turn(address, now_)) [[likely]]
      return;
    deallocate_out_of_turn(block, bytes, align);
  }

  /// @param step where the one who opens it keeps this: null if this ends before. @throws std::logic_error if
  /// one is open.
  void begin_step(planned_core** step);
  void end_step() noexcept;

  void use(step_plan plan);
  [[nodiscard]] std::vector<step_plan> plans() const;
  std::size_t trim() noexcept;
  [[nodiscard]] planned_arena_stats stats() const noexcept;
  [[nodiscard]] planned_arena_options const& options() const noexcept { return options_; }
  [[nodiscard]] std::pmr::memory_resource* fallback() const noexcept { return fallback_; }
  void check_invariants() const noexcept;

 private:
  using request_time = step_run::request_time;

  /// A plan that is kept, and what is known of its use.
  struct kept_plan {
    explicit kept_plan(step_plan plan) : run{std::move(plan)}, hash{run.plan().hash()} {}

    step_run run;
    std::uint64_t hash;
    std::size_t misses = 0;       // since it was made, less the steps that had none
    std::uint64_t used_last = 0;  // the number of the step
    kept_plan* next = nullptr;    // that served the step after, the last time
    bool was_given_up = false;    // the last time it was used
  };
  struct stranger {
    std::uintptr_t begin;
    std::size_t bytes;  // of the slot; 0: it has died
    std::size_t asked;  // of these, asked for
    request_time born;
    kept_plan* plan;     // whose slot it is; null if that is gone
    std::uint32_t slot;  // of that
  };

  // Allocating off the fast path.
  [[nodiscard]] void* allocate_out_of_turn(std::size_t bytes, std::size_t align);
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* take_slot(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* take_slot_of(std::size_t request, std::size_t bytes);
  [[nodiscard]] void* take_fallback(std::size_t bytes, std::size_t align);
  void note_miss();
  void note_unlaid(kept_plan& plan);
  void give_up();

  // Deallocating off the fast path.
  void deallocate_out_of_turn(void* block, std::size_t bytes, std::size_t align) noexcept;
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] bool may_give(std::uintptr_t address, std::size_t bytes) const noexcept;
  void refuse(void const* block, std::size_t bytes, char const* why) const noexcept;

  // Choosing plans.
  void note_order(kept_plan& plan) noexcept;
  [[nodiscard]] kept_plan* choose(std::size_t bytes, std::size_t align) const noexcept;
  [[nodiscard]] bool agrees_so_far(kept_plan const& plan) const noexcept;
  [[nodiscard]] bool change_to(kept_plan* plan);
  [[nodiscard]] bool switch_plan(std::size_t bytes, std::size_t align);
  void estrange(kept_plan& plan, bool own_too);
  [[nodiscard]] bool meets_stranger(std::uintptr_t begin, std::size_t bytes) const noexcept;
  [[nodiscard]] bool has_strangers() const noexcept { return strangers_.size() != dead_strangers_; }
  void drop_dead_strangers() noexcept;
  void serve() noexcept;
  [[nodiscard]] bool is_laid() const noexcept;

  // Planning.
  [[nodiscard]] bool plan_step();
  [[nodiscard]] std::vector<step_record::obstacle> obstacles() const;
  void record_served(kept_plan const& plan);
  void keep(step_plan plan);
  void drop(std::size_t index);
  [[nodiscard]] bool blocks_stay_within_steps() noexcept;
  void add_slots();
  [[nodiscard]] std::size_t used_bytes_end() const noexcept;

  step_run* current_;     // what `plan_` runs by; `nothing_` where there is no plan
  request_time now_ = 1;  // the number of the next request, of all steps

  planned_region& region_;
  planned_arena_options options_;
  std::pmr::memory_resource* fallback_;
  std::vector<std::unique_ptr<kept_plan>> plans_;
  kept_plan* plan_ = nullptr;         // the current one
  kept_plan* plan_before_ = nullptr;  // of this step, where it went from one to another
  kept_plan* plan_of_last_step_ = nullptr;
  std::vector<stranger> strangers_;  // by address
  std::size_t dead_strangers_ = 0;   // of them
  step_record record_;               // of this step
  planned_core** step_ = nullptr;    // null: none is open
  bool is_undecided_ = false;        // the step has not asked for anything yet
  bool gave_up_ = false;             // this step goes on without a plan
  bool plans_anew_ = false;          // at its end, if it gave up
  // Requests of this step that found all slots of their own taken, by blocks that outlived their steps.
  std::vector<std::size_t> wanted_slots_;
  bool is_trim_due_ = false;         // a plan was given up in this step or the one before
  request_time begin_ = 0;           // of the step
  std::uint64_t step_fallback_ = 0;  // requests of this step that asked the fallback
  std::size_t plans_unused_ = 0;     // made since one was of use
  std::uint64_t next_planning_ = 0;  // no step before this number is planned
  std::uint64_t steps_ = 0, planned_steps_ = 0, fallback_allocations_ = 0, outside_allocations_ = 0;
  std::uint64_t misses_ = 0, plans_made_ = 0;
  step_run nothing_{step_plan{}};
};

}  // namespace tidemark::detail
