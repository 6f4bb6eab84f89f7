// SPDX-License-Identifier: Apache-2.0
// What is taken already, as the stages that place one piece after the other ask for it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan_problem.hpp"

namespace tidemark::detail::planning {

/// The smallest multiple of `align` that is >= `at`. @pre a power of two
[[nodiscard]] constexpr granules aligned_up(granules at, granules align) noexcept {
  return (at + (align - 1)) & ~(align - 1);
}

/// Granules `[begin, end)`.
struct range {
  granules begin = 0;
  granules end = 0;
};

/// A union of ranges: `ranges_[i].end < ranges_[i + 1].begin`.
class range_set {
 public:
  void add(range added) {
    const auto first = std::ranges::lower_bound(ranges_, added.begin, {}, &range::end);
    auto last = first;
    for (; last != ranges_.end() && last->begin <= added.end; ++last) {
      added.begin = std::min(added.begin, last->begin);
      added.end = std::max(added.end, last->end);
    }
    if (first == last) {
      ranges_.insert(first, added);
    } else {
      *first = added;
      ranges_.erase(std::next(first), last);
    }
  }
  void clear() noexcept { ranges_.clear(); }
  [[nodiscard]] std::vector<range> const& ranges() const noexcept { return ranges_; }

 private:
  std::vector<range> ranges_;
};

/// What is left to read of a range set.
struct range_reader {
  range const* next = nullptr;
  range const* end = nullptr;
};

/// Reads the gaps of the union of several range sets that have `size` granules, upwards.
/// @param visit called with each gap, `(begin, end)`; the last one's end is `nowhere`. It returns whether to
/// stop.
template <class Visit>
void each_gap(std::vector<range_reader>& readers, granules size, Visit visit) {
  granules begin = 0;
  while (true) {
    // A gap of one set that is too small is none of the union: most are passed over without a look at the
    // others.
    for (std::size_t at = 0, clear = 0; clear < readers.size(); at = at + 1 == readers.size() ? 0 : at + 1) {
      range_reader& reader = readers[at];
      const granules was = begin;
      for (; reader.next != reader.end && reader.next->begin < begin + size; ++reader.next)
        begin = std::max(begin, reader.next->end);
      clear = begin == was ? clear + 1 : 1;
    }
    granules end = nowhere;
    for (range_reader const& reader : readers) {
      if (reader.next != reader.end) end = std::min(end, reader.next->begin);
    }
    if (visit(begin, end) || end == nowhere) return;
    begin = end;
  }
}

/// Calls `whole(node)` for the fewest nodes of a tree over `leaf_n` leaves that make up leaves `[first,
/// last)`, and `part(node)` for the nodes above them. Node 1 is the root, and node i has the children 2i and
/// 2i + 1.
template <class Whole, class Part>
void each_node(std::uint32_t leaf_n, std::uint32_t first, std::uint32_t last, Whole whole, Part part) {
  const auto descend = [&](auto const& self, std::uint32_t node, std::uint32_t begin,
                           std::uint32_t end) -> void {
    if (first <= begin && end <= last) {
      whole(node);
      return;
    }
    part(node);
    const std::uint32_t middle = begin + (end - begin) / 2;
    if (first < middle) self(self, node * 2, begin, middle);
    if (last > middle) self(self, node * 2 + 1, middle, end);
  };
  descend(descend, 1, 0, leaf_n);
}

/// What is taken where lifetimes say which pieces are in conflict.
///
/// A piece's range is noted at O(log n) nodes of a tree over the sections: that takes O(n log n) memory, less
/// where ranges join, whatever the number of conflicts. A set of ranges is a sorted array, so that adding to
/// one of k moves O(k) of them, which for what a plan has is less than a tree of them costs.
class section_space {
 public:
  explicit section_space(problem const& asked)
      : asked_{&asked},
        leaf_n_{std::bit_ceil(std::max(asked.section_n, 1U))},
        nodes_(leaf_n_ * std::size_t{2}),
        levels_(nodes_.size()) {}

  void clear() {
    for (node& each : nodes_) {
      each.across.clear();
      each.within.clear();
    }
    std::ranges::fill(levels_, level{});
  }

  /// Notes that piece i lies at `offset`.
  void take(std::uint32_t i, granules offset) {
    piece const& each = asked_->pieces[i];
    const range taken{offset, offset + each.size};
    each_node(
        leaf_n_, each.first_section, each.last_section,
        [&](std::uint32_t at) {
          nodes_[at].across.add(taken);
          nodes_[at].within.add(taken);
        },
        [&](std::uint32_t at) { nodes_[at].within.add(taken); });
  }

  /// What is taken by the pieces in conflict with i.
  void read(std::uint32_t i, std::vector<range_reader>& readers) const {
    readers.clear();
    const auto add = [&](range_set const& set) {
      std::vector<range> const& all = set.ranges();
      if (!all.empty()) readers.push_back({all.data(), all.data() + all.size()});
    };
    piece const& each = asked_->pieces[i];
    each_node(
        leaf_n_, each.first_section, each.last_section, [&](std::uint32_t at) { add(nodes_[at].within); },
        [&](std::uint32_t at) { add(nodes_[at].across); });
  }

  /// Raises the floor of the pieces in conflict with i to `top`.
  void raise(std::uint32_t i, granules top) {
    piece const& each = asked_->pieces[i];
    // Above each leaf of the range all nodes have a part of it.
    for (std::size_t leaf : {each.first_section, each.last_section - 1}) {
      for (std::size_t at = leaf_n_ + leaf; at != 0; at /= 2)
        levels_[at].part = std::max(levels_[at].part, top);
    }
    each_whole(each, [&](level& at) {
      at.whole = std::max(at.whole, top);
      at.part = std::max(at.part, top);
    });
  }

  [[nodiscard]] std::uint64_t raise_steps(std::uint32_t /*i*/) const {
    return static_cast<std::uint64_t>(std::bit_width(leaf_n_)) * 4;
  }

  /// The highest top that the floor below i was raised to.
  [[nodiscard]] granules floor(std::uint32_t i) {
    granules highest = 0;
    piece const& each = asked_->pieces[i];
    for (std::size_t leaf : {each.first_section, each.last_section - 1}) {
      for (std::size_t at = leaf_n_ + leaf; at != 0; at /= 2) highest = std::max(highest, levels_[at].whole);
    }
    each_whole(each, [&](level const& at) { highest = std::max(highest, at.part); });
    return highest;
  }

 private:
  struct node {
    range_set across;  // of the pieces that are live in all sections of the node, and not of its parent
    range_set within;  // of those that are live in some
  };

  struct level {
    granules whole = 0;  // what all sections of the node were raised to at once
    granules part = 0;   // the highest of what some were raised to; whole <= part
  };

  /// Calls `visit` with the levels of the fewest nodes that make up the sections of a piece: those of
  /// `each_node`, without the nodes above them.
  template <class Visit>
  void each_whole(piece const& each, Visit visit) {
    std::size_t first = leaf_n_ + each.first_section;
    std::size_t last = leaf_n_ + each.last_section;
    for (; first < last; first /= 2, last /= 2) {
      if (first % 2 == 1) visit(levels_[first++]);
      if (last % 2 == 1) visit(levels_[--last]);
    }
  }

  problem const* asked_;
  std::uint32_t leaf_n_;
  std::vector<node> nodes_;
  std::vector<level> levels_;  // of the same nodes, apart: they are read often
};

/// What is taken where a graph says which pieces are in conflict. Memory is linear in its conflicts.
class graph_space {
 public:
  explicit graph_space(problem const& asked)
      : asked_{&asked}, offsets_(asked.pieces.size(), nowhere), floors_(asked.pieces.size(), 0) {}

  void clear() {
    std::ranges::fill(offsets_, nowhere);
    std::ranges::fill(floors_, granules{0});
  }
  void take(std::uint32_t i, granules offset) { offsets_[i] = offset; }

  void read(std::uint32_t i, std::vector<range_reader>& readers) {
    around_.clear();
    for (std::uint32_t j : asked_->neighbors_of(i)) {
      if (offsets_[j] != nowhere) around_.push_back({offsets_[j], offsets_[j] + asked_->pieces[j].size});
    }
    std::ranges::sort(around_, {}, &range::begin);
    // The reader wants ends that ascend, and ranges that touch or overlap may be one.
    std::size_t kept = 0;
    for (range each : around_) {
      if (kept != 0 && each.begin <= around_[kept - 1].end)
        around_[kept - 1].end = std::max(around_[kept - 1].end, each.end);
      else around_[kept++] = each;
    }
    readers.assign(1, {around_.data(), around_.data() + kept});
  }

  void raise(std::uint32_t i, granules top) {
    for (std::uint32_t j : asked_->neighbors_of(i)) floors_[j] = std::max(floors_[j], top);
  }
  [[nodiscard]] std::uint64_t raise_steps(std::uint32_t i) const { return asked_->neighbors_of(i).size(); }
  [[nodiscard]] granules floor(std::uint32_t i) const { return floors_[i]; }

 private:
  problem const* asked_;
  std::vector<granules> offsets_;  // of what is placed, or nowhere
  std::vector<granules> floors_;
  std::vector<range> around_;  // what `read` gave last
};

}  // namespace tidemark::detail::planning
