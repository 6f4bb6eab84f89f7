// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order", "By rising offset" and "Along the skyline".
// Two exact searches for a layout of a given height. Both place one buffer after the other and backtrack.
// They differ in the rule for the next buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "search_buffers.hpp"
#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Searches for the least layout of a given height, for buffers with lifetimes. The answer `impossible` is
/// proven.
///
/// In the least layout each buffer lies at 0, at its fixed offset or on another buffer, and identical buffers
/// are ordered. Connected parts of the unplaced buffers are solved separately. (Ideas of M. Moffitt,
/// "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.)
/// Failed sets of unplaced buffers are kept in a table.
///
/// Invariant, for each section: lowest offset of its unplaced buffers + their sizes <= height.
///
/// Memory is O(n + sections), plus a bounded stack and table. A node takes O(n + sections) steps.
class exact_search {
 public:
  /// The rule for the next buffer.
  enum class way : std::uint8_t { along_skyline, by_rising_offset };

  explicit exact_search(solver_context& context);

  /// Visits at most `max_nodes` nodes, and tries buffers in the order `by`.
  outcome probe(way which, order const& by, offset_type height, std::uint64_t max_nodes);

  /// The offsets of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  // Size of the failure table: 8 MiB. A new failure replaces an old one in its place.
  static constexpr std::size_t max_failure_n = std::size_t{1} << 18;
  // A probe gives up before its stack grows beyond this size: 16 MiB, about 1,400 buffers.
  static constexpr std::size_t max_stack = std::size_t{1} << 20;
  // A probe also gives up at this depth. Each level takes some hundred bytes of the thread's stack.
  static constexpr std::uint32_t max_depth = 2048;

  /// An unplaced buffer, and its lowest possible offset.
  struct unplaced {
    offset_type offset = 0;
    std::uint32_t rank = 0;
    friend auto operator<=>(unplaced const&, unplaced const&) = default;
  };
  /// The unplaced buffers of a node: a range of the stack. All of them lie in the connected range `sections`.
  struct node {
    std::size_t begin = 0;
    std::size_t end = 0;
    section_range sections;
    unplaced last;  // by rising offset: the buffer placed last
  };
  /// Unplaced buffers that fit nowhere behind `last`. They fit nowhere behind a later buffer either, because
  /// each buffer that could follow the later buffer could also follow the earlier one.
  struct failure {
    state_key key;
    unplaced last;
  };
  /// The section to decide next.
  struct decision {
    std::uint32_t section = 0;
    std::int64_t cases = 0;
    bool may_waste = false;  // true if some bytes of the section may stay unused
  };

  [[nodiscard]] bool may_visit(node const& at);
  [[nodiscard]] bool stacked_wrongly(unplaced each) const;
  [[nodiscard]] bool may_be_next(unplaced each) const;
  [[nodiscard]] bool lies_on_plateau(unplaced each) const;
  [[nodiscard]] bool is_feasible_with(std::uint32_t section, std::uint32_t rank) const;
  [[nodiscard]] bool is_feasible(std::uint32_t section, node const& at);
  [[nodiscard]] bool all_feasible(node const& at);
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
  std::vector<offset_type> offsets_;         // by number, of the last placement
  std::vector<ranked> shapes_;               // by number
  std::vector<ranked> ranked_;               // in the probe's order
  std::vector<offset_type> lowest_;          // by rank, lowest possible offset; no_offset: placed
  std::vector<offset_type> skyline_;         // by section
  std::vector<offset_type> left_;            // by section, sizes of the unplaced buffers
  std::vector<std::uint32_t> crossing_;      // by section, unplaced buffers shared with the previous section
  std::vector<std::uint32_t> last_fitting_;  // by section, rank of a buffer that was low enough
  std::vector<std::uint32_t> plateau_end_;   // by section; 0: on no plateau
  std::vector<std::int64_t> cases_;          // by section, as differences
  std::vector<stack_top> stack_tops_;        // by stack group
  std::vector<unplaced> stack_;              // the unplaced buffers of each node on the path
  std::vector<unplaced> candidates_;         // a stack of candidates of each node on the path
  std::vector<failure> failures_;
  std::uint64_t generation_ = 0;  // of the probe; failures of other generations are ignored
  std::uint64_t nodes_end_ = 0;
  std::uint32_t last_failed_section_ = 0;  // the section that failed last
  std::uint32_t depth_ = 0;
  offset_type height_ = 0;
  way way_ = way::along_skyline;
};

}  // namespace tidemark::planner::detail
