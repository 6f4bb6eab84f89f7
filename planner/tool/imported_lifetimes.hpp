// SPDX-License-Identifier: Apache-2.0
/// @file `imported_lifetimes`: blocks that another program's planner has placed, read from the text that it
/// prints, as docs/traces.md describes it. For tidemark-plan and tests; no part of the library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan_file.hpp"

namespace tidemark::tools {

/// Blocks with their lifetimes, and what is known of them besides.
struct imported_lifetimes {
  plan_file file;
  std::vector<std::size_t> lines;  ///< of each block, in the text
  std::size_t height = 0;          ///< bytes of the other planner's plan
  /// No plan is lower, whatever the order of the operations; nothing where the text has no operations.
  std::optional<std::size_t> any_order_bound = std::nullopt;
  std::string left_out;  ///< what is not in it or not as it was, in words; may be empty
};

/// Reads what the graph allocator of ggml prints when it is compiled with `AT_PRINTF`: one graph, one buffer.
/// A block is live from the line of its allocation until that of its deallocation.
/// @throws std::runtime_error whose text is `FILE: reason` or `FILE:LINE: reason`, as the other does.
[[nodiscard]] imported_lifetimes read_ggml_log(std::string const& path);

/// Reads an XLA buffer assignment and its live ranges, in one text.
/// @param allocation which one's values; by default those of the largest that is `preallocated-temp`.
[[nodiscard]] imported_lifetimes read_xla_dump(std::string const& path,
                                               std::optional<std::size_t> allocation);

/// A program's name of a block as an id of a file of lifetimes: its text but for what an id may not have.
[[nodiscard]] std::string id_of(std::string_view name);

}  // namespace tidemark::tools
