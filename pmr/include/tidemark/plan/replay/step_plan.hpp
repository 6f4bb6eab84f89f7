// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_plan`: what a step requested when it was recorded, and where its blocks lie from then on. Owns
/// offsets only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tidemark/plan/memory_plan.hpp>

namespace tidemark {

/// The block of a request.
struct planned_block {
  std::size_t request = 0;  ///< n, from 0
  lifetime life;            ///< in requests of the step; `offset` is where the block lies

  friend bool operator==(planned_block const&, planned_block const&) = default;
};

/// A step that was recorded, and where its blocks lie.
///
/// Time is counted in requests: the block of request `n` is live in `[n, m)` if `m` requests had been made
/// when it was deallocated, `n < m <= requests`. One that outlives the step has `[0, requests + 1)`, and so
/// bytes of its own. A request may have several slots, for as many of its blocks as are live at
/// once: a request gets any that is free.
///
/// Invariants, checked by `require_valid`:
/// - `blocks` are sorted by request; each request from 0 to `requests - 1` has one block, or several of one
///   size and one alignment that all outlive the step
/// - no two blocks in conflict share a byte
/// - `lower_bound <= height`, `offset + size <= height`, and offsets are multiples of `alignment` and of
///   their block's own
struct step_plan {
  std::vector<planned_block> blocks;  ///< by request
  std::size_t requests = 0;           ///< of the step
  std::size_t alignment = 256;        ///< of all blocks, at least
  std::size_t height = 0;             ///< bytes of the memory that holds them all
  std::size_t lower_bound = 0;        ///< bytes below which no plan is
  std::uint64_t kind = 0;             ///< of the step, if a planned arena made the plan; no file has it

  /// True if a block is live when the step ends.
  [[nodiscard]] bool outlives(planned_block const& block) const noexcept {
    return block.life.upper == requests + 1;
  }
  /// @throws std::invalid_argument, whose text names request and formula, for an invariant of the class
  /// comment that does not hold. O(n log n).
  void require_valid() const;

  friend bool operator==(step_plan const&, step_plan const&) = default;
};

/// Writes a plan to a file, in the form that `tidemark-plan` reads:
/// `id,lower,upper,size,alignment,offset`, where `id` is the request. @throws std::runtime_error that
/// names file and reason, with the file as it was before.
void save_plan(step_plan const& plan, std::string const& path);

/// Reads what `save_plan` wrote. @throws std::runtime_error whose text is `FILE: reason` if it cannot be
/// read, and `FILE:LINE: reason` if it is no valid plan; std::bad_alloc. O(n log n).
[[nodiscard]] step_plan load_step_plan(std::string const& path);

}  // namespace tidemark
