// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena`: memory for a repeated step in the least space. The arena owns its planned memory; the
/// fallback owns all other memory.
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
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/detail/planned_core.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// Memory for a step that repeats the same allocations and deallocations, such as a training step.
///
/// The arena records the first step of a kind, whose blocks come from the fallback. At the step's end the
/// arena places the blocks by their lifetimes. From then on request n of a step gets slot n of a table.
///
/// ```cpp
/// planned_arena memory;
/// for (batch const& b : batches) {
///   planned_arena::step step{memory, b.length};  // records the first of a length, and plans the others
///   train(b, &memory);
/// }
/// ```
/// Live blocks never share a byte: a request without a free slot comes from the fallback. docs/plan_decide.md
/// has the rules.
///
/// Complexity: allocate and deallocate in a plan O(1) amortised; off the plan O(log blocks) amortised, plus
/// the fallback. Steps that follow their plans allocate nothing from the heap. Thread-safety: one thread at a
/// time.
/// @tparam AddressSpace source of planned memory: see `planned_arena` below
template <class AddressSpace>
class basic_planned_arena final : public detail::forwarding_resource<basic_planned_arena<AddressSpace>> {
  static_assert(address_space<AddressSpace>, "a planned arena's memory must come from an address_space");

 public:
  /// A step, from its construction to its destruction. Requests without an open step go to the fallback. The
  /// end of a step may make a new plan, which takes milliseconds, or 0.2 s for 100,000 requests. A plan takes
  /// about 300 bytes of host memory for each request.
  class [[nodiscard(TIDEMARK_NAME_SCOPE)]] step {
   public:
    /// Opens a step.
    /// @param kind any integer or enumerator that is equal for steps with the same requests, such as a
    /// sequence length. Each kind has a plan.
    /// @throws std::logic_error, with nothing changed, if a step of the arena is open; std::bad_alloc.
    template <class Kind = int>
      requires(std::integral<Kind> || std::is_enum_v<Kind>)
    [[nodiscard(TIDEMARK_NAME_SCOPE)]] explicit step(basic_planned_arena& arena, Kind kind = 0) {
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

  /// Makes an arena on `AddressSpace(memory...)`.
  /// @throws std::invalid_argument for invalid options, or for memory of a device without a fallback, because
  /// the default resource is on the host.
  template <class... Memory>
    requires std::constructible_from<AddressSpace, Memory...>
  explicit basic_planned_arena(planned_arena_options const& options, Memory&&... memory)
      : region_{AddressSpace(std::forward<Memory>(memory)...), options.reserve},
        core_{region_, AddressSpace::traits.host_accessible, options} {}
  /// Makes an arena that plans in the memory of its fallback. A plan's memory is one block of the fallback,
  /// from the first request of a step to its end. `reserve` has no effect, and `max_slots` is 1. @throws as
  /// above.
  // A template, because compilers mangle the constraints of other members differently.
  template <class Space = AddressSpace>
    requires(std::constructible_from<Space, std::pmr::memory_resource*> && !std::default_initializable<Space>)
  explicit basic_planned_arena(planned_arena_options const& options)
      : region_{Space(options.fallback), 0}, core_{region_, Space::traits.host_accessible, options} {}
  /// Makes an arena with the default options.
  basic_planned_arena()
    requires std::default_initializable<AddressSpace> && (AddressSpace::traits.host_accessible)
      : basic_planned_arena{planned_arena_options{}} {}
  /// Makes an arena with the default options and this fallback.
  explicit basic_planned_arena(std::pmr::memory_resource* fallback)
    requires std::default_initializable<AddressSpace>
      : basic_planned_arena{planned_arena_options{.fallback = fallback}} {}
  /// Rejected at compile time, with a message that shows the right form.
  explicit basic_planned_arena(std::integral auto bytes) : basic_planned_arena{planned_arena_options{}} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a planned_arena takes its size as an option: write planned_arena a{{.reserve = 64 * MiB}}");
  }

  /// Releases planned memory, and its blocks with it; blocks of the fallback stay. Reports a violation if a
  /// step is open; the step becomes inert.
  ~basic_planned_arena() override = default;

  /// Allocates a block.
  /// @param bytes may be 0: the address of the block is unique.
  /// @param align a power of two; planned blocks are aligned at least to `alignment` of the options.
  /// @throws the exceptions of the fallback; std::invalid_argument if `align` is found not to be a power of
  /// two, which only level 2 checks in every call. No block has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) TIDEMARK_LIFETIMEBOUND {
    return core_.allocate(bytes, align);
  }
  /// Deallocates a block, in a step or between steps. Does nothing for null. Reports, and ignores, an address
  /// in planned memory that is not the start of a live block; level 2 also reports a wrong size.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    core_.deallocate(block, bytes, align);
  }

  /// Sets the plan of a kind of step, for example to a saved plan (`load_step_plan`).
  /// @throws std::invalid_argument if the plan is not valid or its alignment is below 16 bytes;
  /// std::logic_error if a step is open; std::bad_alloc. Nothing has changed then.
  template <class Kind = int>
    requires(std::integral<Kind> || std::is_enum_v<Kind>)
  void use(step_plan plan, Kind kind = 0) {
    core_.use(std::move(plan), static_cast<std::uint64_t>(kind));
  }
  /// Returns copies of the kept plans, each with its kind. The most recently used plan comes first. Plans
  /// kinds that have run only once. @throws std::bad_alloc
  [[nodiscard]] std::vector<step_plan> plans() const { return core_.plans(); }

  /// Decommits planned memory that no live block and no open step needs. @return bytes decommitted.
  /// O(blocks).
  std::size_t trim() noexcept { return core_.trim(); }

  /// Returns a snapshot in numbers. O(kinds + blocks).
  [[nodiscard]] planned_arena_stats stats() const noexcept { return core_.stats(); }
  /// Returns the options in effect.
  [[nodiscard]] planned_arena_options const& options() const noexcept { return core_.options(); }
  /// Returns the source of memory that is not planned.
  [[nodiscard]] std::pmr::memory_resource* fallback_resource() const noexcept { return options().fallback; }
  /// Returns the name in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }

  /// Returns the stream of the memory, if the memory has a stream.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return region_.space().stream();
  }
  /// Returns the address space.
  [[nodiscard]] AddressSpace const& space() const noexcept { return region_.space(); }

  /// Reports a violation for every invariant that does not hold. The invariants are those of
  /// `planned_arena_stats`; live blocks do not overlap and are in committed memory. O(blocks log blocks).
  void check_invariants() const noexcept { core_.check_invariants(); }

 private:
  detail::region_of<AddressSpace> region_;
  detail::planned_core core_;
};

/// A planned arena on virtual memory; the default choice on the host.
using planned_arena = basic_planned_arena<virtual_memory>;

extern template class basic_planned_arena<virtual_memory>;

}  // namespace tidemark
