// SPDX-License-Identifier: Apache-2.0
/// @file `prove_lowest`: proves that no plan is lower, in steps that another program can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tidemark/planner.hpp>

namespace tidemark::tools {

/// A proof that no plan is lower.
struct plan_proof {
  std::string log;          ///< format: planner/docs/planner.md, "Proofs"; empty: no proof
  std::uint64_t cases = 0;  ///< cases visited
  bool too_large = false;   ///< true if too many blocks; otherwise a limit ended a missing proof
};

/// Proves that no plan is lower than `made`. Each case assumes which of two blocks is the lower one. A case
/// may find a lower plan, which then replaces `made`. The search is that of `planner::improve` by pairs, for
/// at most 256 blocks. For more blocks a proof exists only if `made` is at the bound of one moment, padding
/// included.
///
/// Memory is at most 100 MiB.
/// @param options uses `alignment`, `node_limit` in cases, `time_limit` from this call on, and `stop`
/// @pre `made` is a plan of `blocks` with these options
/// @post `made.optimal` if a proof was found
/// @throws std::bad_alloc; `made` is still a valid plan
[[nodiscard]] plan_proof prove_lowest(std::span<lifetime const> blocks, planner::result& made,
                                      planner::options const& options);

}  // namespace tidemark::tools
