// SPDX-License-Identifier: Apache-2.0
/// @file
/// Extents of arrays: checked, multiplied, and as text. Owns nothing.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <tuple>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

[[noreturn]] TIDEMARK_COLD void reject_extent(long long extent);
[[noreturn]] TIDEMARK_COLD void reject_reshape(char const* element, std::span<std::size_t const> from,
                                               std::size_t count, std::span<std::size_t const> to);

/// An extent, from any integral type. O(1); compiles to nothing for unsigned types. Thread-safe.
/// @throws std::invalid_argument if it is negative, with a sentence that names it.
template <std::integral Integer>
[[nodiscard]] constexpr std::size_t checked_extent(Integer extent) {
  if constexpr (std::signed_integral<Integer>) {
    if (extent < 0) [[unlikely]]
      reject_extent(static_cast<long long>(extent));
  }
  return static_cast<std::size_t>(extent);
}

/// The extents of an array. @throws as `checked_extent`, on the first that is negative. O(rank).
template <std::integral... Integers>
[[nodiscard]] constexpr std::array<std::size_t, sizeof...(Integers)> checked_extents(Integers... extents) {
  return {checked_extent(extents)...};
}
template <std::integral Integer, std::size_t Rank>
[[nodiscard]] constexpr std::array<std::size_t, Rank> checked_extents(
    std::array<Integer, Rank> const& extents) {
  return std::apply([](auto... each) { return checked_extents(each...); }, extents);
}
/// What `checked_extents` takes: integers, or one array of them.
template <class... Extents>
concept shape_extents = requires(Extents const&... extents) { checked_extents(extents...); };

/// How many elements an array has: the product of its extents, 1 without any.
///
/// @return the product; `uncountable`, which no memory can hold, where it overflows. With an extent of 0 it
/// is 0, whatever the others are. O(rank). Thread-safe.
inline constexpr std::size_t uncountable = (std::numeric_limits<std::size_t>::max)();
[[nodiscard]] constexpr std::size_t element_count(std::span<std::size_t const> extents) noexcept {
  std::size_t count = 1;
  bool overflows = false;
  for (std::size_t const extent : extents) {
    if (extent == 0) return 0;
    overflows |= __builtin_mul_overflow(count, extent, &count);
  }
  return overflows ? uncountable : count;
}

/// An extent, and the place in the source where it was written: the place of the acquisition.
struct located_extent {
  std::size_t value;
  std::source_location where;
  template <std::integral Index>
  constexpr located_extent(Index extent, std::source_location place = std::source_location::current())
      : value{checked_extent(extent)}, where{place} {}
};
/// All extents of an acquisition.
template <std::integral... Extents>
[[nodiscard]] constexpr std::array<std::size_t, 1 + sizeof...(Extents)> all_extents(
    located_extent const& first, Extents... rest) {
  return {first.value, checked_extent(rest)...};
}

/// A place in the source as messages give it: `file:line`. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] std::string place_text(std::source_location where);
/// A shape as messages give it: `float64[3, 4]`, and `float64[]` for a single element of rank 0.
/// @param element the elements' name; "" leaves `[3, 4]`
/// @throws std::bad_alloc. O(rank). Thread-safe.
[[nodiscard]] std::string shape_text(char const* element, std::span<std::size_t const> extents);

}  // namespace tidemark::detail
