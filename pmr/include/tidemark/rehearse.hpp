// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rehearse`: how much memory a capture will need, found out without it.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <utility>

#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/monotone_layout.hpp>
#include <tidemark/detail/step_record.hpp>
#include <tidemark/graph_layout.hpp>
#include <tidemark/plan_options.hpp>
#include <tidemark/step_plan.hpp>

namespace tidemark {

/// Stands in for a `graph_arena` of any size, and has none of its memory: it lays blocks out as the arena
/// will. Most use it through `rehearse`.
///
/// Without a resource of its own to take memory from it hands out addresses that nobody can have: who touches
/// one crashes. With one, a block is that resource's, and can be used.
///
/// `used blocks of it == blocks of the resource`; what was not given back goes back when the rehearsal ends.
///
/// Complexity: O(log blocks) a call. Thread-safety: one thread at a time.
class rehearsal final : public std::pmr::memory_resource {
 public:
  /// @param memory where blocks come from; null: from nowhere. Must outlive this object.
  explicit rehearsal(std::pmr::memory_resource* memory = nullptr) noexcept : memory_{memory} {}
  rehearsal(rehearsal const&) = delete;
  rehearsal& operator=(rehearsal const&) = delete;
  ~rehearsal() override;

  /// What was laid out so far.
  [[nodiscard]] graph_layout layout() const noexcept { return layout_.layout(); }
  /// Where what was allocated so far best lies, if blocks that were given back make room for later ones;
  /// those that are still in use have bytes of their own. @throws as `make_plan`; std::invalid_argument if
  /// the options' alignment is below 256.
  [[nodiscard]] step_plan plan(plan_options const& options = {});

 private:
  // Addresses that no process has: bit 62 makes them none of x86-64, whose bits 57 to 63 are alike, and bit
  // 55 none of AArch64's user space, which begins with a 0 there and ignores the bits above.
  static constexpr std::uintptr_t first_address = std::uintptr_t{1} << 62 | std::uintptr_t{1} << 55;

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override;
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  detail::monotone_layout layout_{first_address, first_address + detail::monotone_layout::bytes_max};
  detail::block_ledger blocks_;  // in use
  detail::step_record record_;
  detail::step_record::request_time now_ = 1;
  std::pmr::memory_resource* memory_;
};

/// Runs `body(resource)` with a resource that lays out what `body` allocates as a `graph_arena` would, and
/// tells what that needs: an arena made of the result is exactly large enough.
///
/// ```cpp
/// graph_layout const layout = rehearse([&](std::pmr::memory_resource& memory) { step(memory, x, y); });
/// ```
/// Where `body` uses its memory, and does not just pass addresses on, it needs some: of `memory`, for
/// instance the resource that the program takes its memory from anyway, so that the rehearsal is the run that
/// warms up. Blocks that `body` does not give back are gone when this returns.
/// Where `body` puts work on a device's stream, `memory` must be ordered by that stream (`device_pool`,
/// `device_cache`): a block is given back while the work that uses it still runs. It is asked for alignments
/// of 256 at least.
///
/// Only what `body` takes of the resource it is handed is seen. Where it knows its `capture_switch` by
/// itself, rehearse with an arena that is large enough, installed in the switch, and look at its `layout()`.
///
/// @param body called once. What it allocates must not depend on what it computes.
/// @param memory where its blocks come from; null: from nowhere, and who touches one crashes.
/// @throws what `body` throws, after everything was given back; out_of_memory where no arena could be so
/// large.
template <class Body>
[[nodiscard]] graph_layout rehearse(Body&& body, std::pmr::memory_resource* memory = nullptr) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.layout();
}

/// The same, and tells where the blocks best lie: a `graph_arena` made of that needs most often no more than
/// was live at once. For captures on one stream.
/// @throws as `rehearse`, and as `rehearsal::plan`.
template <class Body>
[[nodiscard]] step_plan rehearse_plan(Body&& body, std::pmr::memory_resource* memory = nullptr,
                                      plan_options const& options = {}) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.plan(options);
}

}  // namespace tidemark
