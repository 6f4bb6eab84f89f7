// SPDX-License-Identifier: Apache-2.0
/// @file `prove_lowest`: shows that no plan is lower, in steps that another program can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tidemark/planner.hpp>

namespace tidemark::tools {

/// Why no plan is lower.
struct plan_proof {
  std::string log;          ///< as planner/docs/planner.md describes it, "Proofs"; empty: there is none
  std::uint64_t cases = 0;  ///< that were looked at
  bool too_large = false;   ///< more blocks than it is for; else a limit came first where there is no proof
};

/// Shows that no plan is lower than `made`, by cases: which of two blocks is the lower one. Where a case turns
/// out to be a lower plan, `made` becomes that one. It is a search of `make_plan` that keeps what it did, and as that
/// one it is for 256 blocks: of more it says only whether `made` is at the bound of one moment, padding included.
///
/// Memory is 100 MiB at most.
/// @param options its alignment; `node_limit`, of cases; `time_limit`, from this call on; and `stop`
/// @pre `made` is a plan of `blocks` with these options
/// @post `made.optimal` if there is a proof
/// @throws std::bad_alloc; `made` is a plan all the same
[[nodiscard]] plan_proof prove_lowest(std::span<lifetime const> blocks, planner::result& made,
                                      planner::options const& options);

}  // namespace tidemark::tools
