// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena`: a step that repeats, in the least memory there is. The arena owns the memory that it
/// plans; what it does not plan is the fallback's.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/address_space.hpp>
#include <tidemark/detail/planned_core.hpp>
#include <tidemark/detail/planned_region.hpp>
#include <tidemark/planned_arena_options.hpp>
#include <tidemark/planned_arena_stats.hpp>
#include <tidemark/step_plan.hpp>
#include <tidemark/virtual_memory.hpp>

namespace tidemark {

/// Memory for a step that makes the same allocations and deallocations again and again, as a training step
/// does.
///
/// The first step is recorded, while its blocks come from the fallback. At its end its blocks are placed,
/// with all that is known of their lives (`make_plan`): most often in no more memory than was live at once.
/// From then on the n-th request of a step gets the n-th place, by a look into a table.
///
/// ```cpp
/// planned_arena memory;
/// for (int i = 0; i < 1000; ++i) {
///   planned_arena::step step{memory};          // the first is recorded, the others run by its plan
///   std::pmr::vector<float> x(n, &memory);     // the same address in each step
///   train(x, &memory);
/// }
/// ```
/// **Safe whatever the program does.** A place is handed out only when every block whose bytes it shares is
/// dead. What does not fit the plan comes from the fallback and is counted: a request that is larger than
/// planned, in another order, one too many, or whose place is still taken because a block is freed late. A
/// smaller request may use a larger place. Blocks may outlive their step: they keep their bytes until they
/// are given back.
///
/// **It learns.** A plan that misses too often (`misses_max`) is given up, its free memory goes back, and
/// that step is planned anew at its end. Several plans are kept: a step takes the one whose first request is
/// of that size, and the one that follows the last plan if several are. A block that outlives its step gets
/// bytes of its own in the plan, for as many as are live at once.
///
/// Invariants, checked by `check_invariants()`: that of `planned_arena_stats`; blocks in use do not overlap
/// and lie in committed memory.
///
/// Complexity: allocate and deallocate in a plan O(1) amortised over a step; off the plan O(log blocks),
/// amortised, and what the fallback takes. The end of a step that is planned: that of `make_plan`. Host
/// memory: about 300 bytes for each request of each plan. Once steps run by their plans, nothing is allocated
/// from the heap, either. Thread-safety: one thread at a time.
/// @tparam AddressSpace where planned memory comes from: see `planned_arena` below.
template <class AddressSpace>
class basic_planned_arena final : public std::pmr::memory_resource {
  static_assert(address_space<AddressSpace>, "a planned arena's memory must come from an address_space");

 public:
  /// A step: from its construction to its destruction. What is asked for while none is open comes from the
  /// fallback. Its end may plan, which takes up to `plan_options::time_limit`, and as long as the
  /// first order of `make_plan` takes: a second for 100,000 requests.
  class [[nodiscard]] step {
   public:
    /// @throws std::logic_error, with nothing changed, if a step of the arena is open; std::bad_alloc.
    explicit step(basic_planned_arena& arena) : core_{&arena.core_} { arena.core_.begin_step(&core_); }
    step(step const&) = delete;
    step& operator=(step const&) = delete;
    ~step() {
      if (core_ != nullptr) core_->end_step();
    }

   private:
    detail::planned_core* core_;  // null: the arena has ended
  };

  /// An arena on `AddressSpace(memory...)`.
  /// @throws std::invalid_argument for impossible options, or if the memory is a device's and no fallback is
  /// named, because the default resource is the host's.
  template <class... Memory>
    requires std::constructible_from<AddressSpace, Memory...>
  explicit basic_planned_arena(planned_arena_options const& options, Memory&&... memory)
      : region_{AddressSpace(std::forward<Memory>(memory)...), options.reserve},
        core_{region_, options, fallback_of(options)} {}
  /// With the default options.
  basic_planned_arena()
    requires std::default_initializable<AddressSpace> && AddressSpace::host_accessible
      : basic_planned_arena{planned_arena_options{}} {}
  /// With the default options, but for the fallback.
  explicit basic_planned_arena(std::pmr::memory_resource* fallback)
    requires std::default_initializable<AddressSpace>
      : basic_planned_arena{with_fallback(fallback)} {}

  basic_planned_arena(basic_planned_arena const&) = delete;
  basic_planned_arena& operator=(basic_planned_arena const&) = delete;
  /// Gives planned memory back. Blocks in it are gone; those of the fallback are not. Reports a violation if
  /// a step is open, which becomes inert.
  ~basic_planned_arena() override = default;

  /// A block.
  /// @param bytes may be 0: the block differs from all others.
  /// @param align a power of two; planned blocks are aligned to `planning.alignment` at least.
  /// @throws what the fallback throws; std::invalid_argument if `align` is found not to be a power of two,
  /// which only level 2 looks at in every call. Nothing is handed out then, and no block has changed.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) {
    return core_.allocate(bytes, align);
  }

  /// Gives a block back, in a step or between steps. What lies in planned memory and is no block in use is
  /// reported, and left alone; so is a block of another size, at level 2. Null is no block.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    core_.deallocate(block, bytes, align);
  }

  /// Keeps a plan, for instance one of yesterday (`load_step_plan`): steps that match it run by it from the
  /// first on. One that does not match is not used, or given up after `misses_max`
  /// requests.
  /// @throws std::invalid_argument if it is not valid, or aligns to less than 16 bytes; std::logic_error if a
  /// step is open; std::bad_alloc. Nothing has changed then.
  void use(step_plan plan) { core_.use(std::move(plan)); }
  /// Copies of the plans that are kept, those used last first: to be saved (`save`), or looked at.
  [[nodiscard]] std::vector<step_plan> plans() const { return core_.plans(); }

  /// Gives planned memory back that no block in use needs, nor the plan of the open step. @return bytes.
  /// O(blocks).
  std::size_t trim() noexcept { return core_.trim(); }

  /// A snapshot in numbers. O(plans).
  [[nodiscard]] planned_arena_stats stats() const noexcept { return core_.stats(); }
  /// The options that hold.
  [[nodiscard]] planned_arena_options const& options() const noexcept { return core_.options(); }
  /// Where memory comes from that is not planned.
  [[nodiscard]] std::pmr::memory_resource* fallback_resource() const noexcept { return core_.fallback(); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return core_.options().name; }
  /// The stream that the memory is for, where it is for one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.stream(); }
  [[nodiscard]] auto stream() const noexcept {
    return region_.space().stream();
  }

  /// Reports a violation for every invariant of the class comment that does not hold. O(blocks log blocks).
  void check_invariants() const noexcept { core_.check_invariants(); }

 private:
  static std::pmr::memory_resource* fallback_of(planned_arena_options const& options) {
    if (options.fallback != nullptr) return options.fallback;
    if (AddressSpace::host_accessible) return std::pmr::get_default_resource();
    throw std::invalid_argument{
        "planned_arena: no fallback is named, and the default resource is the host's"};
  }
  static planned_arena_options with_fallback(std::pmr::memory_resource* fallback) {
    planned_arena_options options;
    options.fallback = fallback;
    return options;
  }

  void* do_allocate(std::size_t bytes, std::size_t align) override { return core_.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    core_.deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  detail::region_of<AddressSpace> region_;
  detail::planned_core core_;
};

/// A planned arena on virtual memory: the one to use on the host.
using planned_arena = basic_planned_arena<virtual_memory>;

extern template class basic_planned_arena<virtual_memory>;

static_assert(std::is_base_of_v<std::pmr::memory_resource, planned_arena>);
static_assert(!std::is_copy_constructible_v<planned_arena>, "blocks know their resource by its address");

}  // namespace tidemark
