// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rehearse`: measures the memory that a capture will need, without a capture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/graph/graph_layout.hpp>
#include <tidemark/plan/make_plan.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark {
namespace detail {
class step_recorder;
}

/// Stands in for a `graph_arena` of any size. It places blocks as the arena will, but has none of the arena's
/// memory. Most programs use it through `rehearse`.
///
/// Without an upstream, the returned addresses are invalid in every process, and access crashes. With an
/// upstream, blocks come from the upstream and can be used.
///
/// Invariant: `blocks in use == blocks of the upstream`. Blocks still in use at the end of the rehearsal are
/// deallocated.
///
/// Complexity: O(log blocks) for each call. Thread-safety: one thread at a time.
class rehearsal final : public detail::distinct_resource {
 public:
  /// @param memory source of the blocks; null: blocks have no memory. Must outlive this object.
  explicit rehearsal(std::pmr::memory_resource* memory = nullptr);
  ~rehearsal() override;

  /// The layout of all blocks so far.
  [[nodiscard]] graph_layout layout() const noexcept { return layout_.layout(); }
  /// Returns a plan of all allocations so far. Later blocks reuse the bytes of deallocated blocks; blocks
  /// still in use share no bytes. @param alignment of blocks in bytes. @throws as `make_plan`;
  /// std::invalid_argument if `alignment < 256`
  [[nodiscard]] step_plan plan(std::size_t alignment = default_plan_alignment);

 private:
  // An invalid address in every process. On x86-64 bits 57 to 63 must be equal, so bit 62 alone is invalid.
  // On AArch64 bit 55 is 0 in user space, and bits above it may be ignored.
  static constexpr std::uintptr_t first_address = std::uintptr_t{1} << 62 | std::uintptr_t{1} << 55;

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override;

  detail::monotone_layout layout_{first_address, first_address + detail::monotone_layout::max_bytes};
  detail::block_ledger blocks_;  // blocks in use
  std::unique_ptr<detail::step_recorder> recorder_;
  std::uint64_t now_ = 1;
  std::pmr::memory_resource* memory_;
};

/// Runs `body(resource)` on blocks of `memory`, or on addresses without memory if null, and returns the
/// layout of its allocations. The resource places blocks like a `graph_arena`; an arena made from the result
/// is exactly large enough.
///
/// ```cpp
/// graph_layout const layout = rehearse([&](std::pmr::memory_resource& memory) { step(memory, x, y); });
/// ```
/// If `body` accesses its memory, pass a source of memory. The program's usual resource makes the rehearsal a
/// warm-up run. If `body` enqueues work on a stream, `memory` must be ordered by this stream (`device_pool`,
/// `device_cache`), because a block is deallocated while work that uses it still runs. Requested alignments
/// are at least 256. Blocks that `body` does not deallocate are freed on return.
///
/// Only allocations from the passed resource are counted. If `body` allocates through its own
/// `capture_switch`, install a large arena in the switch instead, and read its `layout()`.
///
/// @param body called once; its allocations must not depend on computed values
/// @param memory source of the blocks; null: blocks have no memory
/// @throws whatever `body` throws, after deallocating all blocks; out_of_memory if no arena could be large
/// enough
template <class Body>
[[nodiscard]] graph_layout rehearse(Body&& body, std::pmr::memory_resource* memory = nullptr) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.layout();
}

/// Like `rehearse`, but returns a plan. A `graph_arena` made from the plan usually needs no more than the
/// peak of live bytes. For captures on one stream.
/// @throws as `rehearse` and `rehearsal::plan`
template <class Body>
[[nodiscard]] step_plan rehearse_plan(Body&& body, std::pmr::memory_resource* memory = nullptr,
                                      std::size_t alignment = default_plan_alignment) {
  rehearsal stage{memory};
  std::forward<Body>(body)(static_cast<std::pmr::memory_resource&>(stage));
  return stage.plan(alignment);
}

}  // namespace tidemark
