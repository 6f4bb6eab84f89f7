// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena`: a step that repeats, in the least memory there is. The arena owns the memory that it
/// plans; what it does not plan is the fallback's.
#pragma once

#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/call_overlap.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/detail/foreign_blocks.hpp>
#include <tidemark/plan/replay/detail/plan_cache.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/detail/planned_region.hpp>
#include <tidemark/plan/replay/detail/planning_budget.hpp>
#include <tidemark/plan/replay/detail/step_recorder.hpp>
#include <tidemark/plan/replay/plan_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// How a planned arena plans, and what it keeps.
struct planned_arena_options {
  /// How a recorded step is planned: at its end, on its thread. The alignment is that of all blocks, 16
  /// at least; the time limit does not include the first order of `make_plan`, and is no longer than 32
  /// steps took when they were recorded, or 0.1 ms, unless there is a node limit. What `on_progress` throws
  /// ends the planning of that step, and nothing else.
  plan_options planning = {};
  /// A plan that missed so many requests, less the steps that missed none, is given up: the rest of the
  /// step comes from the fallback, and at its end the step is planned anew. A step that misses more than
  /// one request in eight counts as another kind, which is planned after so many misses. 1 at least.
  std::size_t max_misses = 16;
  /// So many plans are kept, for steps of so many kinds that alternate; 1 at least. The one unused for
  /// longest is dropped.
  std::size_t max_plans = 8;
  /// A request whose blocks outlive their steps gets bytes for so many of them at most; further ones come
  /// from the fallback. 1 at least.
  std::size_t max_slots = 4;
  /// Bytes of address space that are reserved at least; 0: what the kind of memory prefers (1 GiB for
  /// virtual memory). A plan that needs more has the range replaced, which waits for a time without
  /// blocks in it.
  std::size_t reserve = 0;
  /// Where memory comes from that is not planned; null: `std::pmr::get_default_resource()`, on the host
  /// only. Must outlive the arena.
  std::pmr::memory_resource* fallback = nullptr;
  /// Called with the fallback at the end of the first step that a plan served wholly, so that what recorded
  /// steps used need not be held beside the plan. Null: not called. An arena that is made from a pointer to a
  /// pool trims that; with options, `[](std::pmr::memory_resource& used) noexcept {
  /// static_cast<pool&>(used).trim(); }`.
  void (*trim_fallback)(std::pmr::memory_resource& fallback) noexcept = nullptr;
  /// Name in messages and statistics; must outlive the arena.
  char const* name = "planned_arena";
};

/// A snapshot of a planned arena.
///
/// `allocations == planned_allocations + fallback_allocations + outside_allocations`, and `used_blocks <=
/// planned_allocations`. `misses` and `recorded_allocations` are at most `fallback_allocations`.
/// `lower_bound_bytes <= height_bytes`.
struct planned_arena_stats {
  char const* name = "";                   ///< the arena's name
  std::uint64_t steps = 0;                 ///< ended so far
  std::uint64_t planned_steps = 0;         ///< of these, without a request to the fallback
  std::uint64_t allocations = 0;           ///< blocks so far
  std::uint64_t planned_allocations = 0;   ///< of these, in slots of a plan
  std::uint64_t fallback_allocations = 0;  ///< of these, from the fallback in a step
  std::uint64_t recorded_allocations = 0;  ///< of these, recorded so that the step can be planned
  std::uint64_t outside_allocations = 0;   ///< blocks from the fallback with no step open
  std::uint64_t misses = 0;                ///< requests in steps that follow a plan, and had no free slot
  std::uint64_t plans_made = 0;            ///< so far, by planning a step that was recorded
  std::size_t plans = 0;                   ///< kept now
  std::size_t used_blocks = 0;             ///< in slots now
  std::size_t height_bytes = 0;            ///< of the plan that was used last
  std::size_t lower_bound_bytes = 0;       ///< of the same: below that no plan is
  std::size_t committed_bytes = 0;         ///< of memory behind slots now
  std::size_t reserved_bytes = 0;          ///< of addresses for slots now
};

namespace detail {

inline constexpr char const* planned_kind = "planned_arena";  // in messages

/// What a `basic_planned_arena` does, for memory of any kind. Owns plans, and no memory.
///
/// The sequence of a step: choose a plan, replay it, record what it does not serve, plan anew. While there
/// are foreign blocks, the fast path allocates nothing: the slow path compares each slot with them.
///
/// Invariants, checked by `check_invariants()`: those of `plan_replayer` and of `planned_arena_stats`;
/// foreign blocks are sorted, and neither they nor the current plan's live slots overlap; all lie in
/// committed memory.
///
/// One thread at a time.
class planned_core : public forwarding_resource<planned_core> {
 public:
  /// A step: from its construction to its destruction. Requests while none is open go to the fallback. Its
  /// end may plan, which takes up to `plan_options::time_limit`, and as long as the
  /// first order of `make_plan` takes: a second for 100,000 requests.
  class [[nodiscard]] step {
   public:
    /// @throws std::logic_error, with nothing changed, if a step of the arena is open; std::bad_alloc.
    [[nodiscard]] explicit step(planned_core& arena) : arena_{&arena} { arena.begin(*this); }
    step(step const&) = delete;
    step& operator=(step const&) = delete;
    ~step() {
      if (arena_ != nullptr) arena_->end_step();
    }

   private:
    friend planned_core;
    planned_core* arena_;  // null: it has ended
  };

  /// A block.
  /// @param bytes may be 0: the block differs from all others.
  /// @param align a power of two; planned blocks are aligned to `planning.alignment` at least.
  /// @throws what the fallback throws; std::invalid_argument if `align` is found not to be a power of two,
  /// which only level 2 looks at in every call. No block has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) TIDEMARK_LIFETIMEBOUND {
    const call_overlap::call here{calls_, planned_kind, options_.name, "allocate"};
    if (check_level >= 2 && !std::has_single_bit(align)) return allocate_slow(bytes, align);
    if (plan_replayer::slot* const next = plan_->next_in_order(bytes, align)) [[likely]]
      return plan_->take(*next, bytes, now_);
    return allocate_out_of_order(bytes, align);
  }

  /// Deallocates a block, in a step or between steps. An address in planned memory where no block in use
  /// begins is reported, and nothing happens; so is a block of another size, at level 2. Null: does
  /// nothing.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    const call_overlap::call here{calls_, planned_kind, options_.name, "deallocate"};
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    if (check_level < 2 && plan_->deallocate_in_order(address, now_)) [[likely]]
      return;
    deallocate_out_of_order(block, bytes, align);
  }

  /// Adds a plan, for instance a saved one (`load_step_plan`), in place of one for the same requests.
  /// Steps that match it follow it from the first on. One that does not match is not used, or given up
  /// after `max_misses` requests.
  /// @throws std::invalid_argument if it is not valid, or aligns to less than 16 bytes; std::logic_error
  /// if a step is open; std::bad_alloc. Nothing has changed then.
  void use(step_plan plan);
  /// Copies of the plans that are kept, those used last first.
  [[nodiscard]] std::vector<step_plan> plans() const { return cache_.copies(); }

  /// Decommits planned memory that neither a block in use needs nor the plan of the open step. @return
  /// bytes. O(blocks).
  std::size_t trim() noexcept;

  /// A snapshot in numbers. O(plans).
  [[nodiscard]] planned_arena_stats stats() const noexcept;
  /// The options, completed.
  [[nodiscard]] planned_arena_options const& options() const noexcept { return options_; }
  /// Where unplanned memory comes from.
  [[nodiscard]] std::pmr::memory_resource* fallback_resource() const noexcept { return options_.fallback; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(blocks log blocks).
  void check_invariants() const noexcept;

 protected:
  /// @param region must outlive all blocks, and need not be constructed yet.
  planned_core(planned_region& region, bool host_accessible, planned_arena_options const& options);
  ~planned_core() override;

 private:
  using request_time = plan_replayer::request_time;

  enum class phase : std::uint8_t {
    idle,       // no step is open
    choosing,   // the slow path has not seen a request of the step
    replaying,  // the step follows a plan
    fallback,   // the rest of the step comes from it
  };

  void begin(step& opened);
  void end_step() noexcept;

  [[nodiscard]] void* allocate_out_of_order(std::size_t bytes, std::size_t align);
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* take_slot(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* take_slot_of(std::size_t request, std::size_t bytes);
  [[nodiscard]] void* take_if_clear(std::size_t request, std::size_t bytes);
  void count_fallback(std::size_t bytes, std::size_t align) noexcept;
  void record_fallback(void const* block, std::size_t bytes, std::size_t align) noexcept;
  void record_miss();
  void give_up(bool plans_at_end);

  void deallocate_out_of_order(void* block, std::size_t bytes, std::size_t align) noexcept;
  TIDEMARK_COLD void deallocate_foreign(void* block, std::size_t bytes) noexcept;

  [[nodiscard]] bool choose_plan(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool switch_plan(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool change_to(kept_plan& plan);
  TIDEMARK_COLD void warn_without_range(kept_plan const& plan) noexcept;
  void end_planned_step();
  void end_other_step();
  [[nodiscard]] bool has_room_for_a_plan() const noexcept;
  void add_slots();
  void plan_step(kept_plan* replaced = nullptr);
  [[nodiscard]] plan_options planning() const;
  [[nodiscard]] std::vector<byte_range> obstacles() const;
  template <class Visit>
  void each_served(Visit visit) const;
  void keep(step_plan plan, std::uint64_t served = 0);
  void arrange_plans();
  void drop(kept_plan& gone);
  template <class Visit>
  void each_block_in_use(Visit visit) const;
  [[nodiscard]] std::size_t used_bytes_end() const noexcept;
  void update_fast_path() noexcept;

  kept_plan* plan_ = &no_plan_;  // the current one
  request_time now_ = 1;         // the number of the next request, of all steps

  planned_region& region_;
  planned_arena_options options_;
  bool host_accessible_;
  plan_cache cache_;
  foreign_blocks foreign_;
  step_recorder recorder_;
  planning_budget budget_;
  phase phase_ = phase::idle;
  step* step_ = nullptr;                    // that is open, or null
  std::vector<std::size_t> missing_slots_;  // requests whose slots were all taken by blocks of earlier steps
  bool records_ = false;                    // whether the step's requests to the fallback are recorded
  bool plans_at_end_ = false;               // whether a step that is given up may be planned
  bool has_warned_ = false;                 // that there is no range
  bool is_trim_due_ = false;                // memory was decommitted in this step or the one before
  std::uint64_t steps_kept_ = 0;      // given up since a plan served one, while much memory was committed
  std::uint64_t steps_to_keep_ = 1;   // so many of these, and it is decommitted
  std::uint64_t decommitted_at_ = 0;  // in that step; 0: not since memory was last committed
  request_time begin_ = 0;            // of the step
  std::uint64_t step_fallback_ = 0;   // requests of this step to the fallback
  std::uint64_t step_misses_ = 0;     // of these, those that its plan is blamed for
  std::size_t step_switches_ = 0;     // of this step, from one plan to another
  step_signature signature_;          // of this step's requests to the fallback
  std::chrono::steady_clock::time_point record_begin_;  // the first of these, where it was recorded
  std::uint64_t steps_ = 0, planned_steps_ = 0, fallback_allocations_ = 0, outside_allocations_ = 0;
  std::uint64_t recorded_allocations_ = 0, misses_ = 0, plans_made_ = 0;
  kept_plan no_plan_{step_plan{}};
  call_overlap calls_;
};

}  // namespace detail

/// Memory for a step that makes the same allocations and deallocations again and again, as a training step
/// does.
///
/// The first step is recorded, while its blocks come from the fallback. At its end its blocks are placed by
/// their lifetimes (`make_plan`): most often in no more memory than was live at once. From then on the n-th
/// request of a step gets the n-th slot of a table.
///
/// ```cpp
/// planned_arena memory;
/// for (int i = 0; i < 1000; ++i) {
///   planned_arena::step step{memory};          // the first is recorded, the others run by its plan
///   std::pmr::vector<float> x(n, &memory);     // the same address in each step
///   train(x, &memory);
/// }
/// ```
/// **Safe whatever the program does.** A slot is allocated only when every block whose bytes it shares is
/// dead. What does not fit the plan comes from the fallback and is counted: a request that is larger than
/// planned, in another order, one too many, or whose slot is still in use because a block is freed late.
/// A smaller request may use a larger slot. Blocks may outlive their step: they keep their bytes until
/// they are deallocated.
///
/// **It learns.** A plan that misses too often (`max_misses`) is given up, its free memory is decommitted
/// where it is more than 1 MiB and was not soon needed again, and that step is planned anew at its end.
/// Several plans are kept: a step takes the one whose first request is of that size, and the one that follows
/// the last plan if there are several, and changes to another one that has just its next request. A block
/// that outlives its step gets bytes of its own below all plans, for as many as are live at once. Where plans
/// turn out to be of no use, steps are recorded and planned ever less often.
///
/// Invariants, checked by `check_invariants()`: that of `planned_arena_stats`; blocks in use do not overlap
/// and lie in committed memory.
///
/// Complexity: allocate and deallocate in a plan O(1) amortised over a step; off the plan O(log blocks),
/// amortised, and what the fallback takes. The end of a step that is planned: that of `make_plan`. Host
/// memory: about 300 bytes for each request of each plan. Once steps run by their plans, nothing is
/// allocated from the heap, either. Thread-safety: one thread at a time.
/// @tparam AddressSpace where planned memory comes from: see `planned_arena` below.
template <class AddressSpace>
class basic_planned_arena final : public detail::planned_core {
  static_assert(address_space<AddressSpace>, "a planned arena's memory must come from an address_space");

 public:
  /// An arena on `AddressSpace(memory...)`.
  /// @throws std::invalid_argument for impossible options, or if the memory is a device's and no fallback
  /// is named, because the default resource is the host's.
  template <class... Memory>
    requires std::constructible_from<AddressSpace, Memory...>
  explicit basic_planned_arena(planned_arena_options const& options, Memory&&... memory)
      : planned_core{region_, AddressSpace::host_accessible, options},
        region_{AddressSpace(std::forward<Memory>(memory)...), options.reserve} {}
  /// With the default options.
  basic_planned_arena()
    requires std::default_initializable<AddressSpace> && AddressSpace::host_accessible
      : basic_planned_arena{planned_arena_options{}} {}
  /// With the default options, but for the fallback.
  explicit basic_planned_arena(std::pmr::memory_resource* fallback)
    requires std::default_initializable<AddressSpace>
      : basic_planned_arena{planned_arena_options{.fallback = fallback}} {}
  /// The same, for a fallback that can be trimmed, such as a `pool`: it is when a plan serves in its place.
  template <std::derived_from<std::pmr::memory_resource> Trimmed>
    requires std::default_initializable<AddressSpace> && requires(Trimmed& fallback) { fallback.trim(); }
  explicit basic_planned_arena(Trimmed* fallback)
      : basic_planned_arena{planned_arena_options{
            .fallback = fallback, .trim_fallback = [](std::pmr::memory_resource& used) noexcept {
              (void)static_cast<Trimmed&>(used).trim();
            }}} {}

  /// Releases planned memory. Blocks in it are gone; those of the fallback are not. Reports a violation
  /// if a step is open, which becomes inert.
  ~basic_planned_arena() override = default;

  /// The stream that the memory is for, where it is for one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.stream(); }
  [[nodiscard]] auto stream() const noexcept {
    return region_.space().stream();
  }
  /// The address space, for what it says of its memory.
  [[nodiscard]] AddressSpace const& space() const noexcept { return region_.space(); }

 private:
  detail::region_of<AddressSpace> region_;
};

/// A planned arena on virtual memory: the one to use on the host.
using planned_arena = basic_planned_arena<virtual_memory>;

extern template class basic_planned_arena<virtual_memory>;

}  // namespace tidemark
