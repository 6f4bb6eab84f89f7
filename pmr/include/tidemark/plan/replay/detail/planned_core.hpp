// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_core`: the part of a planned arena that does not depend on the kind of memory. Owns plans, but no
/// memory. `planned_region`: the memory of plans. Owns it.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// One range with memory behind its beginning. Thread-safety: one thread at a time.
///
/// `held_bytes <= range.size`, and the base is in the range.
class planned_region {
 public:
  planned_region() = default;
  planned_region(planned_region const&) = delete;
  planned_region& operator=(planned_region const&) = delete;

  /// Commits the first `bytes` bytes. @param movable true if the range may be replaced, because it has no
  /// blocks.
  /// @return true if the bytes are committed. If false, nothing has changed, except that a movable range may
  /// be gone. @throws the exceptions of the address space, with the same state.
  [[nodiscard]] virtual bool commit_front(std::size_t bytes, std::size_t align, bool movable) = 0;
  /// Decommits memory above the first `bytes` bytes if the kind of memory can; all memory if `bytes` is 0.
  virtual void decommit_above(std::size_t bytes) noexcept = 0;
  /// Returns the resource of `upstream_memory`, of which each range is one block. Returns null for other
  /// memory, which may be slow to return (`registered_memory`).
  [[nodiscard]] virtual std::pmr::memory_resource* upstream() const noexcept = 0;
  /// Returns the reason why the address space refused the last range; empty if unknown.
  [[nodiscard]] virtual char const* refusal() const noexcept = 0;
  /// Returns the first address of blocks. @pre Memory is held.
  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  /// Returns the bytes of memory from the base on.
  [[nodiscard]] std::size_t committed_bytes() const noexcept {
    return held_bytes_ == 0 ? 0 : held_bytes_ - padding();
  }
  /// Returns all addresses, with and without memory.
  [[nodiscard]] byte_range range() const noexcept { return range_; }

 protected:
  ~planned_region() = default;
  [[nodiscard]] std::size_t padding() const noexcept { return base_ - range_.begin; }

  byte_range range_{};
  std::uintptr_t base_ = 0;     // multiple of the last requested alignment
  std::size_t held_bytes_ = 0;  // bytes of memory from the beginning of the range
};

/// A planned region of an address space.
template <address_space Space>
class region_of final : public planned_region {
 public:
  region_of(Space space, std::size_t reserve_bytes)
      : space_{std::move(space)}, reserve_bytes_{reserve_bytes} {}
  region_of(region_of const&) = delete;
  region_of& operator=(region_of const&) = delete;
  ~region_of() { release(); }

  [[nodiscard]] bool commit_front(std::size_t bytes, std::size_t align, bool movable) override {
    const std::size_t slack =
        align > Space::traits.block_alignment ? align - Space::traits.block_alignment : 0;
    if (bytes > max_request || slack > max_request) return false;
    if (base_ % align != 0 || bytes > range_.end() - base_) {
      if (!movable) return false;
      release();
      const std::size_t wanted =
          Space::traits.commits ? (std::max)(reserve_bytes_, space_.chunk_bytes()) : reserve_bytes_;
      range_ = space_.reserve(bytes + slack, (std::max)(wanted, bytes + slack));
      if (range_.empty()) return false;
      base_ = align_up(range_.begin, align);
      if constexpr (!Space::traits.commits) grow(range_.size);
    }
    const std::size_t target = (std::min)(align_up(padding() + bytes, space_.granularity()), range_.size);
    if (target <= held_bytes_) return true;
    const byte_range part{range_.begin + held_bytes_, target - held_bytes_};
    const std::size_t committed = space_.commit(part, part.size);
    if (committed == 0) return false;
    grow((std::min)(held_bytes_ + committed, range_.size));
    return true;
  }

  void decommit_above(std::size_t bytes) noexcept override {
    if constexpr (Space::traits.commits) {
      const std::size_t target = bytes == 0 ? 0 : align_up(padding() + bytes, space_.granularity());
      if (target >= held_bytes_) return;
      const byte_range removed{range_.begin + target, held_bytes_ - target};
      if constexpr (Space::traits.host_accessible)
        detail::unpoison(removed.begin, removed.size);  // the address space may write to the removed memory
      if (space_.decommit(removed)) held_bytes_ = target;
      else if constexpr (Space::traits.host_accessible) poison(removed.begin, removed.size);
    } else if (bytes == 0) {
      release();
    }
  }

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept override {
    if constexpr (std::same_as<Space, upstream_memory> || std::same_as<Space, upstream_device_memory>)
      return space_.upstream_resource();
    else return nullptr;
  }
  [[nodiscard]] char const* refusal() const noexcept override { return refusal_of(space_); }

  [[nodiscard]] Space const& space() const noexcept { return space_; }

 private:
  static constexpr std::size_t max_request = std::size_t{1} << 62;

  void grow(std::size_t held_bytes) noexcept {
    if constexpr (Space::traits.host_accessible) poison(range_.begin + held_bytes_, held_bytes - held_bytes_);
    held_bytes_ = held_bytes;
  }
  void release() noexcept {
    if (range_.empty()) return;
    if constexpr (Space::traits.host_accessible) detail::unpoison(range_.begin, held_bytes_);
    space_.release(range_);
    range_ = {};
    base_ = held_bytes_ = 0;
  }

  Space space_;
  std::size_t reserve_bytes_;
};

// The records of a planned arena are in src/plan/replay/step_records.hpp.
class foreign_blocks;
class kinds_of_steps;
class step_recorder;
struct kind_of_step;
struct learned_request;

inline constexpr char const* planned_kind = "planned_arena";  // name in messages

/// Runs a step: finds and replays the plan of its kind, records requests without a slot, and makes a new plan
/// at the end if the step differed.
///
/// If the region's memory comes from the fallback, the region is *borrowed*: one block of the fallback from
/// the first request of a planned step to its end; if a planned block outlives the step, to a later end or
/// `trim`. Blocks that outlive each step are in the fallback, and their slots have no bytes.
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
    if (plan_replayer::slot* const next = fast_path_.next_in_order(bytes, align)) [[likely]]
      return fast_path_.assign_next(*next, bytes, now_);
    return allocate_slow(bytes, align);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    const call_overlap::call here{calls_, planned_kind, options_.name, "deallocate"};
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (check_level < 2 && fast_path_.deallocate_in_order(address, now_)) [[likely]]
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
  using learned_step = std::vector<learned_request>;

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
  void trim_fallback(std::size_t trims_due) noexcept;
  void commit_plan();
  // The fast path is off while foreign blocks are in the way, because each slot must be compared with them.
  void update_fast_path() noexcept;

  void learn_from_step();
  TIDEMARK_COLD void schedule_trims() noexcept;
  void learn_from_replay(bool has_too_much);
  void plan_again(kind_of_step& kind, learned_step const& before);
  [[nodiscard]] bool must_learn_later(std::uint64_t requests) const noexcept;
  void learn_from_previous_step();
  [[nodiscard]] learned_step learn_early_deaths(kind_of_step const& kind) const;
  [[nodiscard]] learned_step learn_deaths(kind_of_step& kind);
  [[nodiscard]] step_plan plan_beside(learned_step const& learned, kind_of_step const& kind,
                                      request_time begin) const;
  void plan_anew(kind_of_step& kind, learned_step learned, request_time begin);
  void install_plan(kind_of_step& kind, step_plan made);
  [[nodiscard]] bool is_unused() const noexcept;
  template <class Visit>
  void each_block_in_use(Visit visit) const;
  [[nodiscard]] std::size_t used_bytes_end() const noexcept;
  [[nodiscard]] std::size_t highest_plan() const noexcept;

  plan_replayer::fast_path fast_path_;  // position in the current plan; of `no_plan_` if observed
  request_time now_ = 1;                // number of the next request, counted over all steps
  plan_replayer* plan_ = &no_plan_;     // current plan

  planned_region& region_;
  planned_arena_options options_;
  ended_pointer<allocation_observer> observer_;  // null: none
  bool host_accessible_;
  bool is_borrowed_;  // the region is one block of the fallback during a step
  std::unique_ptr<kinds_of_steps> kinds_;
  kind_of_step* kind_ = nullptr;  // kind of the open or previous step; null before the first step
  std::unique_ptr<foreign_blocks> foreign_;
  std::unique_ptr<step_recorder> recorder_;
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
  std::size_t fallback_bytes_ = 0;   // bytes of requests of steps to the fallback since a trim was scheduled
  bool has_returned_ = false;        // true if a block was returned to the fallback since its trim
  std::uint64_t refused_until_ = 0;  // number of steps up to which the region has only the step's plan
  std::uint64_t steps_ = 0, planned_steps_ = 0, partly_planned_steps_ = 0;
  std::uint64_t fallback_allocations_ = 0, outside_allocations_ = 0, misses_ = 0, plans_made_ = 0;
  plan_replayer no_plan_{step_plan{}};
  call_overlap calls_;
};

}  // namespace tidemark::detail
