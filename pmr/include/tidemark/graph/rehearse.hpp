// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rehearse`: how much memory a capture will need, found out without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/graph/detail/monotone_layout.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/plan/make_plan.hpp>
#include <tidemark/plan/replay/detail/learned_step.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {

/// Stands in for a `graph_arena` of any size, and has none of its memory: it lays blocks out as the arena
/// will. Most use it through `rehearse`.
///
/// Without an upstream it returns addresses that no process has: to touch one crashes. With an upstream a
/// block is the upstream's, and can be used.
///
/// `blocks in use == blocks of the upstream`; what is still in use when the rehearsal ends is deallocated.
///
/// Complexity: O(log blocks) a call. Thread-safety: one thread at a time.
class rehearsal final : public detail::distinct_resource {
 public:
  /// @param memory where blocks come from; null: from nowhere. Must outlive this object.
  explicit rehearsal(std::pmr::memory_resource* memory = nullptr) noexcept : memory_{memory} {}
  ~rehearsal() override;

  /// What was laid out so far.
  [[nodiscard]] graph_layout layout() const noexcept { return layout_.layout(); }
  /// A plan of what was allocated so far, in which later blocks reuse the bytes of deallocated ones; blocks
  /// still in use have bytes of their own. @param alignment of blocks in bytes @throws as `make_plan`;
  /// std::invalid_argument if the alignment is below 256.
  [[nodiscard]] step_plan plan(std::size_t alignment = default_plan_alignment);

 private:
  // Addresses that no process has: bit 62 makes them invalid on x86-64, whose bits 57 to 63 are alike,
  // and bit 55 keeps them out of AArch64's user space, which has a 0 there and ignores the bits above.
  static constexpr std::uintptr_t first_address = std::uintptr_t{1} << 62 | std::uintptr_t{1} << 55;

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override;

  detail::monotone_layout layout_{first_address, first_address + detail::monotone_layout::max_bytes};
  detail::block_ledger blocks_;  // in use
  detail::step_recorder recorder_;
  std::uint64_t now_ = 1;
  std::pmr::memory_resource* memory_;
};

/// Runs `body(resource)` with a resource that lays out what `body` allocates as a `graph_arena` would, and
/// returns what that needs: an arena made of the result is exactly large enough.
///
/// ```cpp
/// graph_layout const layout = rehearse([&](std::pmr::memory_resource& memory) { step(memory, x, y); });
/// ```
/// Where `body` uses its memory, and does not just pass addresses on, it needs some: of `memory`, for
/// instance the resource that the program takes its memory from anyway, so that the rehearsal is the run
/// that warms up. Blocks that `body` does not deallocate are gone when this returns. Where `body` puts
/// work on a device's stream, `memory` must be ordered by that stream (`device_pool`, `device_cache`): a
/// block is deallocated while the work that uses it still runs. Its alignments are 256 at least.
///
/// Only what `body` allocates from the resource it is passed is seen. Where it knows its `capture_switch` by
/// itself, rehearse with an arena that is large enough, installed in the switch, and look at its
/// `layout()`.
///
/// @param body called once. What it allocates must not depend on what it computes.
/// @param memory where its blocks come from; null: there is no memory behind them.
/// @throws what `body` throws, after everything was deallocated; out_of_memory where no arena could be so
/// large.
template <class Body>
[[nodiscard]] graph_layout rehearse(Body&& body, std::pmr::memory_resource* memory = nullptr) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.layout();
}

/// The same, and returns a plan: a `graph_arena` made of it needs most often no more than was live at
/// once. For captures on one stream.
/// @throws as `rehearse`, and as `rehearsal::plan`.
template <class Body>
[[nodiscard]] step_plan rehearse_plan(Body&& body, std::pmr::memory_resource* memory = nullptr,
                                      std::size_t alignment = default_plan_alignment) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.plan(alignment);
}

}  // namespace tidemark
