// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Promotion".
// Keeps a number for each section: a segment tree with range addition and range maximum. A node has the sum
// added to all of its sections, and the largest number below it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// A number for each section. Adding to a range and finding the largest number of a range take O(log n)
/// steps.
///
/// Invariant: `largest == max(largest of the children) + added`. Node k has the children 2k and 2k + 1.
class section_maximum {
 public:
  explicit section_maximum(std::size_t sections)
      : leaf_n_{std::bit_ceil(std::max<std::size_t>(sections, 1))}, nodes_(leaf_n_ * 2) {}

  /// @pre one number for each section
  void restart(std::span<offset_type const> numbers) {
    std::ranges::fill(nodes_, node{});
    for (std::size_t k = 0; k < numbers.size(); ++k)
      nodes_[leaf_n_ + k].largest = static_cast<double>(numbers[k]);
    for (std::size_t at = leaf_n_ - 1; at != 0; --at) summarize(at);
  }

  void add(section_range sections, double number) { add(1, all(), sections, number); }

  struct found {
    double number;
    std::uint32_t section;
  };
  /// Returns the largest number of the range and its first section. @pre the range is not empty
  [[nodiscard]] found largest_in(section_range sections) const { return largest_in(1, all(), sections); }

 private:
  struct node {
    double largest = 0;
    double added = 0;
  };

  [[nodiscard]] section_range all() const { return {0, static_cast<std::uint32_t>(leaf_n_)}; }
  [[nodiscard]] static bool is_within(section_range inner, section_range outer) {
    return outer.begin <= inner.begin && inner.end <= outer.end;
  }

  void summarize(std::size_t at) {
    nodes_[at].largest = std::max(nodes_[at * 2].largest, nodes_[at * 2 + 1].largest) + nodes_[at].added;
  }

  void add(std::size_t at, section_range here, section_range to, double number) {
    if (!here.overlaps(to)) return;
    if (is_within(here, to)) {
      nodes_[at].largest += number;
      nodes_[at].added += number;
      return;
    }
    const std::uint32_t middle = here.begin + (here.end - here.begin) / 2;
    add(at * 2, {here.begin, middle}, to, number);
    add(at * 2 + 1, {middle, here.end}, to, number);
    summarize(at);
  }

  [[nodiscard]] found largest_in(std::size_t at, section_range here, section_range of) const {
    if (!here.overlaps(of)) return {-1, 0};
    if (is_within(here, of)) {
      const double largest = nodes_[at].largest;
      while (at < leaf_n_) at = at * 2 + (nodes_[at * 2].largest < nodes_[at * 2 + 1].largest ? 1 : 0);
      return {largest, static_cast<std::uint32_t>(at - leaf_n_)};
    }
    const std::uint32_t middle = here.begin + (here.end - here.begin) / 2;
    found left = largest_in(at * 2, {here.begin, middle}, of);
    const found right = largest_in(at * 2 + 1, {middle, here.end}, of);
    if (left.number < right.number) left = right;
    return {left.number + nodes_[at].added, left.section};
  }

  std::size_t leaf_n_;
  std::vector<node> nodes_;
};

}  // namespace tidemark::planner::detail
