// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena`: a step that repeats, in the least memory there is. The arena owns the memory that it
/// plans; what it does not plan is the fallback's.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/detail/planned_core.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// Memory for a step that makes the same allocations and deallocations again and again, as a training step
/// does.
///
/// The first step of a kind is recorded, while its blocks come from the fallback. At its end its blocks are
/// placed by their lifetimes (`make_plan`). From then on the n-th request of a step gets the n-th slot of a
/// table.
///
/// ```cpp
/// planned_arena memory;
/// for (batch const& b : batches) {
///   planned_arena::step step{memory, b.length};  // records the first of a length, and plans the others
///   train(b, &memory);
/// }
/// ```
/// Live blocks share no byte, whatever the program does: a request without a free slot comes from the
/// fallback. A plan learns the largest size of each request. docs/plan.md has the rules.
///
/// Complexity: allocate and deallocate in a plan O(1) amortised over a step; off the plan O(log blocks),
/// amortised, and what the fallback takes. Host memory: about 300 bytes for each request of each plan. Steps
/// that follow their plans allocate nothing from the heap. Thread-safety: one thread at a time.
/// @tparam AddressSpace where planned memory comes from: see `planned_arena` below.
template <class AddressSpace>
class basic_planned_arena final : public detail::forwarding_resource<basic_planned_arena<AddressSpace>> {
  static_assert(address_space<AddressSpace>, "a planned arena's memory must come from an address_space");

 public:
  /// A step: from its construction to its destruction. Requests while no step is open go to the fallback. The
  /// end of a step may plan it anew, which takes milliseconds, or 0.2 s for 100,000 requests.
  class [[nodiscard]] step {
   public:
    /// @param kind any integer or enumerator that is the same for steps with the same requests: a sequence
    /// length, or training or evaluation. Each kind has a plan.
    /// @throws std::logic_error, with nothing changed, if a step of the arena is open; std::bad_alloc.
    template <class Kind = int>
      requires(std::integral<Kind> || std::is_enum_v<Kind>)
    [[nodiscard]] explicit step(basic_planned_arena& arena, Kind kind = 0) {
      arena.core_.begin(core_, static_cast<std::uint64_t>(kind));
    }
    step(step const&) = delete;
    step& operator=(step const&) = delete;
    ~step() {
      if (core_ != nullptr) core_->end_step();
    }

   private:
    detail::planned_core* core_ = nullptr;
  };

  /// An arena on `AddressSpace(memory...)`.
  /// @throws std::invalid_argument for impossible options, or if the memory is a device's and no fallback
  /// is named, because the default resource is the host's.
  template <class... Memory>
    requires std::constructible_from<AddressSpace, Memory...>
  explicit basic_planned_arena(planned_arena_options const& options, Memory&&... memory)
      : region_{AddressSpace(std::forward<Memory>(memory)...), options.reserve},
        core_{region_, AddressSpace::traits.host_accessible, options} {}
  /// An arena that plans in the memory of its fallback: a plan's memory is one block of the fallback, from the
  /// first request of a step to its end. `reserve` has no effect, and `max_slots` is 1. @throws as above.
  // A template, because compilers mangle the constraints of other members differently.
  template <class Space = AddressSpace>
    requires(std::constructible_from<Space, std::pmr::memory_resource*> && !std::default_initializable<Space>)
  explicit basic_planned_arena(planned_arena_options const& options)
      : region_{Space(options.fallback), 0}, core_{region_, Space::traits.host_accessible, options} {}
  /// With the default options.
  basic_planned_arena()
    requires std::default_initializable<AddressSpace> && (AddressSpace::traits.host_accessible)
      : basic_planned_arena{planned_arena_options{}} {}
  /// With the default options, but for the fallback.
  explicit basic_planned_arena(std::pmr::memory_resource* fallback)
    requires std::default_initializable<AddressSpace>
      : basic_planned_arena{planned_arena_options{.fallback = fallback}} {}

  /// Releases planned memory. Blocks in it are gone; those of the fallback are not. Reports a violation
  /// if a step is open, which becomes inert.
  ~basic_planned_arena() override = default;

  /// A block.
  /// @param bytes may be 0: the block differs from all others.
  /// @param align a power of two; planned blocks are aligned to `alignment` of the options at least.
  /// @throws what the fallback throws; std::invalid_argument if `align` is found not to be a power of two,
  /// which only level 2 looks at in every call. No block has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) TIDEMARK_LIFETIMEBOUND {
    return core_.allocate(bytes, align);
  }
  /// Deallocates a block, in a step or between steps. An address in planned memory where no block in use
  /// begins is reported, and nothing happens; so is a block of another size, at level 2. Null: does
  /// nothing.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    core_.deallocate(block, bytes, align);
  }

  /// Makes a plan, for instance a saved one (`load_step_plan`), the plan of a kind of step.
  /// @throws std::invalid_argument if it is not valid, or aligns to less than 16 bytes; std::logic_error
  /// if a step is open; std::bad_alloc. Nothing has changed then.
  template <class Kind = int>
    requires(std::integral<Kind> || std::is_enum_v<Kind>)
  void use(step_plan plan, Kind kind = 0) {
    core_.use(std::move(plan), static_cast<std::uint64_t>(kind));
  }
  /// Copies of the plans that are kept, each with its kind. The plan used last comes first.
  [[nodiscard]] std::vector<step_plan> plans() const { return core_.plans(); }

  /// Decommits planned memory that neither a block in use needs nor the plan of the open step. @return
  /// bytes. O(blocks).
  std::size_t trim() noexcept { return core_.trim(); }

  /// A snapshot in numbers. O(kinds + blocks).
  [[nodiscard]] planned_arena_stats stats() const noexcept { return core_.stats(); }
  /// The options, completed.
  [[nodiscard]] planned_arena_options const& options() const noexcept { return core_.options(); }
  /// Source of memory that is not planned.
  [[nodiscard]] std::pmr::memory_resource* fallback_resource() const noexcept { return options().fallback; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }

  /// The stream that the memory is for, where it is for one.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return region_.space().stream();
  }
  /// The address space, for what it says of its memory.
  [[nodiscard]] AddressSpace const& space() const noexcept { return region_.space(); }

  /// Reports a violation for every invariant that does not hold: `planned_arena_stats` has those of the
  /// counts; blocks in use do not overlap and lie in committed memory. O(blocks log blocks).
  void check_invariants() const noexcept { core_.check_invariants(); }

 private:
  detail::region_of<AddressSpace> region_;
  detail::planned_core core_;
};

/// A planned arena on virtual memory: the one to use on the host.
using planned_arena = basic_planned_arena<virtual_memory>;

extern template class basic_planned_arena<virtual_memory>;

}  // namespace tidemark
