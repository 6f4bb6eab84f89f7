// SPDX-License-Identifier: Apache-2.0
/// @file `prove_lowest`: shows that no plan is lower, in steps that another program can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tidemark/plan/solver/plan.hpp>

namespace tidemark::tools {

/// Why no plan is lower.
struct plan_proof {
  std::string log;          ///< as docs/planner.md describes it, "Proofs"; empty: a limit came first
  std::uint64_t cases = 0;  ///< that were looked at
};

/// More blocks than this are proven by the sum of what is live at one moment, or not at all: a case takes
/// their square in bits, and more than their square in time.
inline constexpr std::size_t max_blocks_of_cases = 256;

/// Shows that no plan is lower than `made`, by cases: which of two blocks is the lower one. Where a case turns
/// out to be a lower plan, `made` becomes that one. It shares nothing with the search of `make_plan`.
///
/// Memory is 150 MiB at most.
/// @param options its alignment; `node_limit`, of cases; `time_limit`, from this call on; and `stop`
/// @pre `made` is a plan of `blocks` with these options
/// @post `made.optimal` if there is a proof
/// @throws std::bad_alloc; `made` is a plan all the same
[[nodiscard]] plan_proof prove_lowest(std::span<lifetime const> blocks, memory_plan& made,
                                      plan_options const& options);

}  // namespace tidemark::tools
