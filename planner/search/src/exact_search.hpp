// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order", "By rising offset" and "Along the skyline".
// Both exact searches for a layout of a given height: they place one buffer after the other, and take it back
// where what follows fails. They differ in which buffers may come next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "search_buffers.hpp"
#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Looks for layouts of a given height of buffers with lifetimes. `impossible` is proven.
///
/// The search looks for the least layout of the height, comparing the offsets of the buffers in their order. Each
/// layout that it visits keeps two rules:
///  - each lies at 0, at its fixed offset or on another one;
///  - of buffers that are alike the first is lower, and so is the first of two that are live in the same
///    sections and lie on each other.
/// A section holds at each moment: its lowest offset of those left + the sizes left in it <= height. Connected
/// parts of the unplaced buffers are placed by themselves. (Ideas of Moffitt, "MiniMalloc: A Lightweight Memory
/// Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.) Besides, sets of unplaced buffers that failed are
/// kept in a table.
///
/// Along the skyline: the skyline is the top of the placed buffers, by section. A plateau is a range of sections in which
/// it is lower than beside them on both sides. The next buffer above a section of a plateau either fits between the
/// plateau's sides and lies on the skyline, or lies higher, and some bytes of the section are never used. Exactly one of
/// these cases holds, so that no layout is visited twice. The section with the fewest cases is decided first; mostly
/// there are one or two. If all bytes of a section are needed, the buffer cannot lie higher; full steps are therefore
/// decided soon. A buffer that could lie on the skyline and does not lies higher by the least size of its neighbors at
/// least.
///
/// By rising offset: buffers are placed by rising offset, and equal offsets in their order, so that no layout is
/// visited twice. No buffer is placed at or above `min(offset[j] + size[j])` over the unplaced buffers j, because j could
/// lie below it; `offset[j]` is the lowest offset of j now. A buffer that has been passed must first be raised by a
/// neighbor that comes later.
///
/// Memory is O(n + sections) and a bounded stack and table. A node takes O(n + sections) steps.
class exact_search {
 public:
  /// The rule of which buffers may come next.
  enum class way : std::uint8_t { along_skyline, by_rising_offset };

  explicit exact_search(solver_context& context);

  /// Visits at most `max_nodes` nodes, and tries buffers in the order `by`.
  outcome probe(way which, order const& by, offset_type height, std::uint64_t max_nodes);

  /// The offsets of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  // The failures that are remembered, the newest in each place: 8 MiB.
  static constexpr std::size_t max_failure_n = std::size_t{1} << 18;
  // A probe gives up that would keep more: 16 MiB, and some 1,400 buffers.
  static constexpr std::size_t max_stack = std::size_t{1} << 20;
  // Or that would go deeper: some hundred bytes of the thread's stack a call.
  static constexpr std::uint32_t max_depth = 2048;

  /// A buffer that is left, and the lowest offset that it can still have.
  struct unplaced {
    offset_type offset = 0;
    std::uint32_t rank = 0;
    friend auto operator<=>(unplaced const&, unplaced const&) = default;
  };
  /// The unplaced buffers of a node: a range of the stack. All lie in `sections`, which are connected.
  struct node {
    std::size_t begin = 0;
    std::size_t end = 0;
    section_range sections;
    unplaced last;  // by rising offset: the one that was placed last
  };
  /// Unplaced buffers that could not be placed behind `last`. They cannot be placed behind a later one either, because
  /// all buffers that could follow the later one could follow the earlier one too.
  struct failure {
    state_key key;
    unplaced last;
  };
  /// The section to decide next.
  struct decision {
    std::uint32_t section = 0;
    std::int64_t cases = 0;
    bool may_waste = false;  // whether some of its bytes may stay unused
  };

  [[nodiscard]] bool may_visit(node const& at);
  [[nodiscard]] bool stacked_wrongly(unplaced each) const;
  [[nodiscard]] bool may_be_next(unplaced each) const;
  [[nodiscard]] bool lies_on_plateau(unplaced each) const;
  [[nodiscard]] bool section_holds_with(std::uint32_t section, std::uint32_t rank) const;
  [[nodiscard]] bool section_holds(std::uint32_t section, node const& at);
  [[nodiscard]] bool sections_hold(node const& at);
  [[nodiscard]] state_key key_of(node const& at) const;
  void find_plateaus(section_range sections);
  [[nodiscard]] decision decide(node const& at);
  void find_on_plateau(node const& at, std::uint32_t section);
  void find_by_rising_offset(node const& at);
  [[nodiscard]] bool push_raised(node const& at, section_range sections, offset_type top,
                                 std::uint32_t except, node& child);
  outcome solve(node const& at);
  outcome try_cases(node const& at);
  outcome place(node const& at, unplaced next);
  outcome solve_without(node const& at, node const& child, ranked const& placed);
  outcome waste(node const& at, std::uint32_t section);
  outcome split_and_solve(node const& at);

  solver_context* context_;
  problem const* instance_;
  std::vector<offset_type> offsets_;     // by number, where it was placed last
  std::vector<ranked> shapes_;           // by number
  std::vector<ranked> ranked_;           // in the probe's order
  std::vector<offset_type> lowest_;      // by rank, that it can still have; no_offset: it is placed
  std::vector<offset_type> skyline_;     // by section
  std::vector<offset_type> left_;        // by section, the sizes of those left
  std::vector<std::uint32_t> crossing_;  // by section, how many of those left it shares with the one before
  std::vector<std::uint32_t> witness_;   // by section, the rank of one that was low enough
  std::vector<std::uint32_t> plateau_end_;  // by section; 0: it is on none
  std::vector<std::int64_t> cases_;         // by section, differences
  std::vector<stack_top> stack_tops_;       // by stack group
  std::vector<unplaced> stack_;             // what is left of each node on the way, one after the other
  std::vector<unplaced> candidates_;        // a stack, likewise
  std::vector<failure> failures_;
  std::uint64_t generation_ = 0;  // of the probe: what failed in another one says nothing here
  std::uint64_t nodes_end_ = 0;
  std::uint32_t suspect_ = 0;  // the section that failed last
  std::uint32_t depth_ = 0;
  offset_type height_ = 0;
  way way_ = way::along_skyline;
};

}  // namespace tidemark::planner::detail
