// SPDX-License-Identifier: Apache-2.0
// Sweeps over time: what is live when, and which of that overlaps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tidemark::detail::planning {

/// `[begin, end)` of something that is counted.
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

/// A block that begins or ends.
struct event {
  std::uint64_t moment = 0;
  bool birth = false;
  std::uint32_t number = 0;
};

/// The events of blocks 0 to n - 1 in order: deaths before births, as a lifetime does not reach its end.
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

/// The first block whose bytes overlap those of one that is live with it, and that one.
/// @param bytes_of the bytes of a block by its number; an empty range overlaps nothing
template <class BytesOf>
[[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint32_t>> find_overlap(
    std::span<event const> events, BytesOf bytes_of) {
  // Ranges that overlap are equivalent. No two of the map are.
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

}  // namespace tidemark::detail::planning
