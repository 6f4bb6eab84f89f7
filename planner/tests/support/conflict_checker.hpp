// SPDX-License-Identifier: Apache-2.0
// Checks a plan of blocks whose conflicts are given as pairs. Checks each conflict.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <tidemark/planner.hpp>

#include "plan_checker.hpp"

namespace tidemark::test {

using planner::plan_block;
using planner::plan_conflict;

/// Returns the fault of a plan in words, or an empty text. Requires only that the lower bound is at least the largest block.
template <class Plan>
[[nodiscard]] std::string plan_fault(Plan const& made, std::span<plan_block const> blocks,
                                     std::span<plan_conflict const> conflicts, std::size_t alignment) {
  using namespace plan_checker_detail;
  if (std::string fault = fault_of_each(made, blocks, alignment); !fault.empty()) return fault;
  for (auto [i, j] : conflicts) {
    if (i >= blocks.size() || j >= blocks.size()) return "a conflict names a block that is not there";
    const std::size_t first = made.offsets[i], second = made.offsets[j];
    const bool have_bytes = blocks[i].size > 0 && blocks[j].size > 0;
    if (i != j && have_bytes && first < second + blocks[j].size && second < first + blocks[i].size) {
      return text_of(i, blocks[i], first) + " and " + text_of(j, blocks[j], second) + " share bytes";
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size > made.lower_bound) {
      return "the lower bound is " + std::to_string(made.lower_bound) + ", below " +
             text_of(i, blocks[i], made.offsets[i]);
    }
  }
  return {};
}

}  // namespace tidemark::test
