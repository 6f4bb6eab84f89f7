// SPDX-License-Identifier: Apache-2.0
/// @file `plan_file`: blocks to plan, read from a file in the form of planner/docs/formats.md, and written
/// with their offsets. For tidemark-plan, benchmarks and tests; not part of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tidemark/plan/make_plan.hpp>

namespace tidemark::tools {

/// A file of lifetimes in memory. Block i is in line `i + first_line`.
struct plan_file {
  static constexpr std::size_t first_line = 2;  ///< below the header

  std::vector<lifetime> blocks;
  std::vector<std::string> ids;                             ///< of the blocks; ids need not be unique
  std::string header = "id,lower,upper,size";               ///< as in the file
  std::vector<std::string> rows;                            ///< as in the file, without line ends
  std::optional<std::size_t> offset_column = std::nullopt;  ///< counted from 0; empty without this column

  /// Adds a block that is not in the file. @pre the file has no further columns
  void add(std::string id, lifetime const& block);
  /// Sets the end of the lifetime of an added block.
  void end_at(std::size_t number, std::uint64_t upper);
  /// Returns the text of the file, with LF as line ends.
  [[nodiscard]] std::string text() const;
  /// Returns the text with offsets, in their column or in a new last column.
  /// @param offsets one for each block.
  [[nodiscard]] std::string text(std::span<std::size_t const> offsets) const;
};

/// Reads `id,lower,upper,size[,alignment][,offset]`, in any order of columns.
/// @throws std::runtime_error with `FILE: reason` or `FILE:LINE: reason` if the file cannot be read or has
///   another format.
[[nodiscard]] plan_file read_lifetimes(std::string const& path);

}  // namespace tidemark::tools
