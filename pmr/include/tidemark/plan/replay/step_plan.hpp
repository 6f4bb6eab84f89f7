// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_plan`: the requests of a recorded step, and the offsets of their blocks. Owns offsets only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tidemark/plan/make_plan.hpp>

namespace tidemark {

/// The planned block of a request.
struct planned_block {
  std::size_t request = 0;  ///< number of the request, from 0
  lifetime life;            ///< in requests of the step; `offset` is the block's offset

  friend bool operator==(planned_block const&, planned_block const&) = default;
};

/// A recorded step and the offsets of its blocks.
///
/// Time is counted in requests. The block of request `n` is live in `[n, m)` if `m` requests precede its
/// deallocation, `n < m <= requests`. A block that outlives the step has `[0, requests + 1)`, and therefore
/// bytes of its own. A request has several slots if several of its blocks are live at once.
///
/// Invariants, checked by `require_valid`:
/// - `blocks` are sorted by request. Each request in `[0, requests)` has one block, or several outliving
///   blocks of one size and alignment.
/// - Blocks in conflict share no byte.
/// - `lower_bound <= height`, `offset + size <= height`, and offsets are multiples of `alignment` and the
///   block's own alignment.
struct step_plan {
  std::vector<planned_block> blocks;  ///< sorted by request
  std::size_t requests = 0;           ///< number of requests of the step
  std::size_t alignment = 256;        ///< minimum alignment of all blocks
  std::size_t height = 0;             ///< bytes of the memory for all blocks
  std::size_t lower_bound = 0;        ///< bytes: no plan is lower
  std::uint64_t kind = 0;  ///< kind of the step if a planned arena made the plan; not saved in files

  /// Returns true if a block is live at the end of the step.
  [[nodiscard]] bool outlives(planned_block const& block) const noexcept {
    return block.life.upper == requests + 1;
  }
  /// @throws std::invalid_argument if an invariant of the class comment does not hold; the text has the
  /// request and the formula. O(n log n).
  void require_valid() const;

  friend bool operator==(step_plan const&, step_plan const&) = default;
};

/// Writes a plan to a file for `load_step_plan` and `tidemark-plan --replan`, without its kind. The columns
/// are `id,lower,upper,size,alignment,offset`; `id` is the request, and `lower` and `upper` are numbers of
/// requests. @throws std::runtime_error with the file and the reason; the file has not changed then.
void save_plan(step_plan const& plan, std::string const& path);

/// Reads a file of `save_plan`, also after `tidemark-plan --replan`. Plans of a trace (`--from-trace`) do not
/// load, because their times are events. @throws std::runtime_error with the text `FILE: reason` if the file
/// cannot be read, and `FILE:LINE: reason` if the plan is not valid; std::bad_alloc. O(n log n).
[[nodiscard]] step_plan load_step_plan(std::string const& path);

}  // namespace tidemark
