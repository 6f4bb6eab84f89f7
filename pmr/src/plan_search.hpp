// SPDX-License-Identifier: Apache-2.0
// The stage of make_plan that goes through all layouts of a height that need to be looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan_run.hpp"

namespace tidemark::detail::planning {

/// Whether there is a layout of a height.
enum class outcome : std::uint8_t { found, impossible, unknown };

/// Which of the pieces that may be next is tried first.
enum class next_choice : std::uint8_t { lowest, first_in_order };

/// Looks for layouts of a given height of pieces with lifetimes, by placing and taking back one piece after
/// the other. What is told `impossible` is so: every layout was looked at, or is known to be no better than
/// another.
///
/// The ideas of what need not be looked at are those of Moffitt, "MiniMalloc: A Lightweight Memory Allocator
/// for Hardware-Accelerated Machine Learning", ASPLOS 2023, and one more: what failed once is kept.
///
/// Of all layouts of that height there is one that is least, comparing the offsets of the pieces in their
/// order. It alone need be found, and so:
///  - no piece could lie lower with the others where they are: it lies at 0, at its fixed offset or on
///    another;
///  - pieces are placed by rising offset, and equal offsets in their order;
///  - a piece that is left could otherwise lie below the next one, and so none is placed at or above
///    `min(offset[j] + size[j])` over those that are left, where `offset[j]` is where j could lie now;
///  - of pieces that are alike the first is lower, and so is the first of two that are live in the same
///    sections and lie on each other. A section holds at each moment: its lowest offset of those left + what
///    is left in it <= height. Pieces that are left and have no section in common with the others are placed
///    by themselves, and fail by themselves.
///
/// Memory is O(n + sections) and a bounded stack and table. A node takes O(n + sections) steps.
class height_search {
 public:
  explicit height_search(search_run& run);
  ~height_search();
  height_search(height_search const&) = delete;
  height_search& operator=(height_search const&) = delete;

  /// @param order all pieces
  /// @param nodes_max it gives up after so many
  /// @return what it came to; `unknown` too if the run was cut off.
  [[nodiscard]] outcome probe(std::span<std::uint32_t const> order, next_choice choice, granules height,
                              std::uint64_t nodes_max);

  /// Where the pieces lie. @pre the last probe found it
  [[nodiscard]] std::vector<granules> const& offsets() const noexcept;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace tidemark::detail::planning
