// SPDX-License-Identifier: Apache-2.0
/// @file `imported_lifetimes`: blocks that another program's planner placed, read from its printed text.
/// planner/docs/formats.md describes the forms. For tidemark-plan and tests; not part of the library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan_file.hpp"

namespace tidemark::tools {

/// Blocks with their lifetimes, and further facts of the other plan.
struct imported_lifetimes {
  plan_file file;
  std::vector<std::size_t> lines;  ///< line of each block in the text
  std::size_t height = 0;          ///< bytes of the other planner's plan
  /// Bound for any order of the operations; empty if the text has no operations.
  std::optional<std::size_t> any_order_bound = std::nullopt;
  std::string left_out;  ///< omitted or changed parts, in words; may be empty
};

/// Reads the log of ggml's graph allocator, compiled with `AT_PRINTF`, for one graph and one buffer. A block
/// is live from the line of its allocation until the line of its deallocation.
/// @throws std::runtime_error with `FILE: reason` or `FILE:LINE: reason`; so does `read_xla_dump`.
[[nodiscard]] imported_lifetimes read_ggml_log(std::string const& path);

/// Reads an XLA buffer assignment and its live ranges from one text.
/// @param allocation number of the allocation to read; by default the largest one that is
///   `preallocated-temp`.
[[nodiscard]] imported_lifetimes read_xla_dump(std::string const& path,
                                               std::optional<std::size_t> allocation);

/// Converts a program's name of a block to an id of a file of lifetimes. Replaces characters that an id must
/// not contain.
[[nodiscard]] std::string id_of(std::string_view name);

}  // namespace tidemark::tools
