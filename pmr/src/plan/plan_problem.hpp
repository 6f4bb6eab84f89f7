// SPDX-License-Identifier: Apache-2.0
// The checked blocks of a plan, and the orders in which `make_plan` places them. Sweeps over time find blocks
// that are live together and share bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail::planning {

/// A range `[begin, end)` of a counted quantity.
template <class Number>
struct range_of {
  Number begin = 0;
  Number end = 0;

  [[nodiscard]] bool overlaps(range_of other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend auto operator<=>(range_of const&, range_of const&) = default;
};

/// Offsets.
using range = range_of<std::uint64_t>;

/// The birth or death of a block.
struct event {
  std::uint64_t moment = 0;
  bool birth = false;
  std::uint32_t number = 0;
};

/// Returns the events of blocks 0 to n - 1 in order. Deaths precede births, because a lifetime excludes its
/// end.
/// @param lifetime_of a range by a block's number
template <class LifetimeOf>
[[nodiscard]] std::vector<event> events_of(std::size_t n, LifetimeOf lifetime_of) {
  std::vector<event> events;
  events.reserve(n * 2);
  for (std::uint32_t i = 0; i < n; ++i) {
    events.push_back({lifetime_of(i).begin, true, i});
    events.push_back({lifetime_of(i).end, false, i});
  }
  std::ranges::sort(events, {}, [](event const& e) { return std::tuple{e.moment, e.birth, e.number}; });
  return events;
}

/// Returns the first block whose bytes overlap those of another live block, and the other block.
/// @param bytes_of returns the bytes of a block by its number; an empty range overlaps nothing
template <class BytesOf>
[[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint32_t>> find_overlap(
    std::span<event const> events, BytesOf bytes_of) {
  // Overlapping ranges are equivalent in this order. No two ranges of the map are.
  const auto is_below = [](range one, range other) { return one.end <= other.begin; };
  std::map<range, std::uint32_t, decltype(is_below)> live;
  for (event const& e : events) {
    const range bytes = bytes_of(e.number);
    if (bytes.begin == bytes.end) continue;
    if (!e.birth) {
      live.erase(bytes);
    } else if (const auto [other, added] = live.emplace(bytes, e.number); !added) {
      return std::pair{e.number, other->second};
    }
  }
  return std::nullopt;
}

inline constexpr std::size_t unplaced = (std::numeric_limits<std::size_t>::max)();

/// Numbers of buffers, each once.
using order = std::vector<std::uint32_t>;

/// A block that can be in conflict with others, because it has bytes and a lifetime.
struct buffer {
  std::size_t block = 0;                  ///< number of the block
  std::size_t size = 0;                   ///< bytes, a multiple of the plan's alignment
  std::size_t align = 1;                  ///< at least the plan's alignment
  std::size_t fixed = unplaced;           ///< fixed offset, if any
  range_of<std::uint32_t> lifespan = {};  ///< sections
  double duration = 0;                    ///< duration of the lifetime
  std::size_t load = 0;                   ///< the largest sum of sizes in one of its sections

  [[nodiscard]] bool is_fixed() const noexcept { return fixed != unplaced; }
  /// Returns its bytes at an offset; empty if it is not placed.
  [[nodiscard]] range bytes_at(std::size_t offset) const noexcept {
    return offset == unplaced ? range{} : range{offset, offset + size};
  }
};

/// Sections are the largest sets of buffers that are live at once, in the order of time. Two buffers are in
/// conflict exactly if their lifespans overlap. A problem has at most as many sections as buffers.
struct plan_problem {
  std::vector<buffer> buffers;
  std::uint32_t section_count = 0;
  std::size_t lower_bound = 0;
};

/// Offsets of buffers, and the gaps between them.
class placed_buffers {
 public:
  /// Places the fixed buffers; the others are unplaced.
  explicit placed_buffers(plan_problem const& problem) : problem_{&problem} {
    for (buffer const& each : problem.buffers) {
      if (each.is_fixed()) by_offset_.push_back(static_cast<std::uint32_t>(offsets_.size()));
      offsets_.push_back(each.fixed);
    }
    std::ranges::sort(by_offset_, {}, [&](std::uint32_t i) { return offsets_[i]; });
  }

  void place(std::uint32_t i, std::size_t offset) {
    offsets_[i] = offset;
    by_offset_.insert(
        std::ranges::upper_bound(by_offset_, offset, {}, [&](std::uint32_t j) { return offsets_[j]; }), i);
  }
  /// Returns the lowest offset from `floor` on at which a buffer fits between its conflicting buffers.
  [[nodiscard]] std::size_t lowest_gap(std::uint32_t i, std::size_t floor) const {
    buffer const& each = problem_->buffers[i];
    std::size_t offset = align_up(floor, each.align);
    for (std::uint32_t j : by_offset_) {
      buffer const& other = problem_->buffers[j];
      const range bytes = other.bytes_at(offsets_[j]);
      if (bytes.begin >= offset + each.size) break;
      if (bytes.end > offset && other.lifespan.overlaps(each.lifespan))
        offset = align_up(bytes.end, each.align);
    }
    return offset;
  }
  [[nodiscard]] std::vector<std::size_t> const& offsets() const noexcept { return offsets_; }

 private:
  plan_problem const* problem_;
  std::vector<std::size_t> offsets_;
  order by_offset_;
};

/// Places next the buffer with the lowest possible offset on the placed buffers; ties go to the first in the
/// order.
/// @return the offset of each buffer
[[nodiscard]] std::vector<std::size_t> place_lowest_first(plan_problem const& problem, order const& by);

}  // namespace tidemark::detail::planning
