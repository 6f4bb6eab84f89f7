// SPDX-License-Identifier: Apache-2.0
/// @file
/// Extents of arrays: from what a caller wrote to numbers that are right, and to text. Owns nothing.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <source_location>
#include <string>

#include <tidemark/macros.hpp>

namespace tidemark::detail {

[[noreturn]] TIDEMARK_COLD void refuse_extent(long long extent);
[[noreturn]] TIDEMARK_COLD void refuse_reshape(char const* element, std::size_t const* from,
                                               std::size_t from_rank, std::size_t from_count,
                                               std::size_t const* to, std::size_t to_rank);

/// An extent, from any integral type. O(1); compiles to nothing for unsigned types. Thread-safe.
/// @throws std::invalid_argument if it is negative, with a sentence that names it.
template <std::integral Integer>
[[nodiscard]] constexpr std::size_t checked_extent(Integer extent) {
  if constexpr (std::signed_integral<Integer>) {
    if (extent < 0) [[unlikely]]
      refuse_extent(static_cast<long long>(extent));
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
  std::array<std::size_t, Rank> checked{};
  for (std::size_t r = 0; r != Rank; ++r) checked[r] = checked_extent(extents[r]);
  return checked;
}

/// How many elements an array has: the product of its extents, 1 of none.
///
/// @param[out] count the product; the largest number there is where it does not fit
/// @return whether it fits. With an extent of 0 it always does, whatever the others are.
///
/// O(rank), without a division as long as the numbers are below 2^32. Thread-safe.
[[nodiscard]] constexpr bool element_count(std::size_t const* extents, std::size_t rank,
                                           std::size_t& count) noexcept {
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t half = std::size_t{1} << (std::numeric_limits<std::size_t>::digits / 2);
  bool fits = true;
  count = 1;
  for (std::size_t r = 0; r != rank; ++r) {
    std::size_t const extent = extents[r];
    if (extent == 0) {
      count = 0;
      return true;
    }
    if ((count | extent) >= half && count > max / extent) [[unlikely]]
      fits = false;
    count *= extent;
  }
  if (!fits) count = max;
  return fits;
}

/// An extent, and the place in the source where it was written: the place of the acquisition.
struct located_extent {
  std::size_t value;
  std::source_location where;
  template <std::integral Index>
  constexpr located_extent(Index extent, std::source_location place = std::source_location::current())
      : value{checked_extent(extent)}, where{place} {}
};

/// The product of extents: the largest number there is, of which no memory has room, where it overflows.
template <std::size_t Rank>
[[nodiscard]] constexpr std::size_t elements_of(std::array<std::size_t, Rank> const& extents) noexcept {
  std::size_t count = 0;
  (void)element_count(extents.data(), Rank, count);
  return count;
}

/// A shape as messages give it: `float64[3, 4]`, and `float64[]` for a single element of rank 0.
/// @param element the elements' name; "" leaves `[3, 4]`
/// @throws std::bad_alloc. O(rank). Thread-safe.
[[nodiscard]] std::string shape_text(char const* element, std::size_t const* extents, std::size_t rank);

/// Lets a reshape pass that keeps the number of elements. O(rank). Thread-safe.
/// @throws std::invalid_argument if it does not, with a sentence that gives both shapes.
constexpr void require_same_count(char const* element, std::size_t const* from, std::size_t from_rank,
                                  std::size_t from_count, std::size_t const* to, std::size_t to_rank) {
  std::size_t count = 0;
  if (!element_count(to, to_rank, count) || count != from_count) [[unlikely]]
    refuse_reshape(element, from, from_rank, from_count, to, to_rank);
}

}  // namespace tidemark::detail
