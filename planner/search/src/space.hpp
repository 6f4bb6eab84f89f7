// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Orders".
// Keeps the occupied bytes by section: a segment tree whose nodes have sorted ranges of offsets. The lowest
// gap for a buffer is found by reading the ranges of the O(log n) nodes of its lifespan in parallel, from
// below. The offset rises past each range in the way until all nodes leave room.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// Sorted ranges that do not touch: `set[i].end < set[i + 1].begin`.
using range_set = std::vector<range>;

/// Adds a range to a set and merges touching ranges.
inline void add_range(range_set& set, range added) {
  const auto first = std::ranges::lower_bound(set, added.begin, {}, &range::end);
  auto last = first;
  for (; last != set.end() && last->begin <= added.end; ++last) {
    added.begin = std::min(added.begin, last->begin);
    added.end = std::max(added.end, last->end);
  }
  if (first == last) {
    set.insert(first, added);
  } else {
    *first = added;
    set.erase(std::next(first), last);
  }
}

/// The unread ranges of a set, by rising `begin`.
using range_reader = std::span<range const>;

/// Returns the lowest offset, at least `floor`, at which a buffer fits in the union of several range sets.
inline offset_type lowest_gap(std::vector<range_reader>& readers, buffer const& each, offset_type floor) {
  offset_type offset = align_up(floor, each.align);
  // `clear` counts the sets checked since the offset last rose; each of them leaves room.
  for (std::size_t at = 0, clear = 0; clear < readers.size(); at = at + 1 == readers.size() ? 0 : at + 1) {
    range_reader& reader = readers[at];
    const offset_type was = offset;
    for (; !reader.empty() && reader.front().begin < offset + each.size; reader = reader.subspan(1)) {
      if (reader.front().end > offset) offset = align_up(reader.front().end, each.align);
    }
    clear = offset == was ? clear + 1 : 1;
  }
  return offset;
}

/// Returns the number of unread ranges of all readers.
[[nodiscard]] inline std::uint64_t ranges_to_read(std::vector<range_reader> const& readers) {
  std::uint64_t ranges = 0;
  for (range_reader each : readers) ranges += each.size();
  return ranges;
}

/// The occupied ranges, for buffers whose conflicts follow from lifetimes.
///
/// A buffer's range is kept at O(log n) nodes of a tree over the sections. Memory is O(n log n), less if
/// ranges merge, whatever the number of conflicts. A set of ranges is a sorted array: adding to a set of k
/// ranges moves O(k) of them. For the sets of real plans that costs less than a tree.
class section_space {
 public:
  explicit section_space(problem const& instance)
      : instance_{&instance},
        leaf_n_{std::bit_ceil(std::max(instance.section_count, 1U))},
        nodes_(leaf_n_ * std::size_t{2}) {}

  void clear() {
    for (node& each : nodes_) {
      each.across.clear();
      each.within.clear();
    }
  }

  /// Marks the bytes of buffer i at `offset` as occupied.
  void occupy(std::uint32_t i, offset_type offset) {
    const range taken{offset, offset + instance_->buffers[i].size};
    each_node(
        i,
        [&](std::uint32_t at) {
          add_range(nodes_[at].across, taken);
          add_range(nodes_[at].within, taken);
        },
        [&](std::uint32_t at) { add_range(nodes_[at].within, taken); });
  }

  /// Reads the ranges above `floor` that the buffers in conflict with i occupy.
  void read(std::uint32_t i, std::vector<range_reader>& readers, offset_type floor = 0) const {
    readers.clear();
    const auto add = [&](range_set const& set) {
      const auto first = std::ranges::upper_bound(set, floor, {}, &range::end);
      if (first != set.end()) readers.emplace_back(first, set.end());
    };
    each_node(
        i, [&](std::uint32_t at) { add(nodes_[at].within); },
        [&](std::uint32_t at) { add(nodes_[at].across); });
  }

 private:
  struct node {
    range_set across;  // of buffers live in all sections of this node, but not of its parent
    range_set within;  // of buffers live in some section of this node
  };

  /// Calls `whole(node)` for the fewest nodes that cover the sections of buffer i, and `part(node)` for their
  /// proper ancestors. Node 1 is the root, and node k has the children 2k and 2k + 1.
  template <class Whole, class Part>
  void each_node(std::uint32_t i, Whole whole, Part part) const {
    std::uint32_t first = leaf_n_ + instance_->buffers[i].lifespan.begin;
    std::uint32_t end = leaf_n_ + instance_->buffers[i].lifespan.end;
    // Visits the ancestors of the first and the last leaf that also cover other leaves.
    for (std::uint32_t height = 1; leaf_n_ >> height != 0; ++height) {
      const std::uint32_t left = first >> height, right = (end - 1) >> height;
      const bool is_left_within = left << height == first;
      const bool is_right_within = (right + 1) << height == end;
      if (!is_left_within || (left == right && !is_right_within)) part(left);
      if (left != right && !is_right_within) part(right);
    }
    for (; first < end; first /= 2, end /= 2) {
      if (first % 2 == 1) whole(first++);
      if (end % 2 == 1) whole(--end);
    }
  }

  problem const* instance_;
  std::uint32_t leaf_n_;
  std::vector<node> nodes_;
};

}  // namespace tidemark::planner::detail
