// SPDX-License-Identifier: Apache-2.0
/// @file `plan_file`: blocks that a plan is to place, read from a file in the form that docs/traces.md
/// describes, and written with their offsets. For tidemark-plan, benchmarks and tests; no library part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tidemark/plan/memory_plan.hpp>

namespace tidemark::tools {

/// A file of lifetimes in memory. Block i is in line `i + first_line`.
struct plan_file {
  static constexpr std::size_t first_line = 2;  ///< below the header

  std::vector<lifetime> blocks;
  std::vector<std::string> ids;                             ///< of the blocks: texts, which need not differ
  std::string header = "id,lower,upper,size";               ///< as it is in the file
  std::vector<std::string> rows;                            ///< as they are in the file, without line ends
  std::optional<std::size_t> offset_column = std::nullopt;  ///< counted from 0, where there is one

  /// Adds a block that is in no file yet, to one without further columns.
  void add(std::string id, lifetime const& block);
  /// Sets the end of the lifetime of a block that was added.
  void end_at(std::size_t number, std::uint64_t upper);
  /// The file as it is, with LF as its line ends.
  [[nodiscard]] std::string text() const;
  /// The same with offsets: in their column, or in one that is added behind the others.
  /// @param offsets one a block.
  [[nodiscard]] std::string text(std::span<std::size_t const> offsets) const;
};

/// Reads `id,lower,upper,size[,alignment][,offset]`, in any order of columns.
/// @throws std::runtime_error whose text is `FILE: reason` or `FILE:LINE: reason` if it cannot be read, or is
/// no such file.
[[nodiscard]] plan_file read_lifetimes(std::string const& path);

}  // namespace tidemark::tools
