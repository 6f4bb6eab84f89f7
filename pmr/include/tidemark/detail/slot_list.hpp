// SPDX-License-Identifier: Apache-2.0
/// @file
/// `slot_list`: the pieces of memory that a workspace has for one element type.
#pragma once

#include <cmath>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tidemark/detail/element_name.hpp>
#include <tidemark/detail/sanitizers.hpp>

namespace tidemark::detail {

struct slot_life;
struct header_chunk;

/// What taken-back memory of a type reads as at level 1: a value that spoils whatever is computed from it.
template <class T>
inline constexpr T poison_value = T{};
template <std::floating_point T>
inline constexpr T poison_value<T> = std::numeric_limits<T>::quiet_NaN();
template <std::integral T>
inline constexpr T poison_value<T> = std::numeric_limits<T>::max();
template <std::floating_point T>
inline constexpr std::complex<T> poison_value<std::complex<T>>{std::numeric_limits<T>::quiet_NaN(),
                                                               std::numeric_limits<T>::quiet_NaN()};

/// What a list must know of its element type. One for each type, for ever.
struct element_info {
  char const* name;
  std::size_t bytes;
  std::size_t align;
  void const* poison;        // this pattern …
  std::size_t poison_bytes;  // … so many bytes long, which divide those of an element
  std::size_t elements = 1;  // what statistics count for one: 64 for a word of bits
};

template <class T>
concept has_poison_value = std::floating_point<T> || std::integral<T> ||
                           requires(T z) { requires std::same_as<T, std::complex<typename T::value_type>>; };

template <class T>
[[nodiscard]] constexpr element_info describe_element() noexcept {
  if constexpr (has_poison_value<T>) {
    return {element_name<T>, sizeof(T), alignof(T), &poison_value<T>, sizeof(T)};
  } else {
    return {element_name<T>, sizeof(T), alignof(T), &rewound_fill,
            1};  // bytes, because any other may be invalid
  }
}
template <class T>
inline constexpr element_info element_of = describe_element<T>();

/// What a word of packed bits is to the list that it comes from, which is not that of std::uint64_t.
struct bit_word {
  std::uint64_t bits;
};
template <>
inline constexpr bit_word poison_value<bit_word>{~std::uint64_t{0}};
template <>
inline constexpr element_info element_of<bit_word>{
    "bits", sizeof(bit_word), alignof(bit_word), &poison_value<bit_word>, sizeof(bit_word), 64};

/// One piece of memory.
///
/// Invariants: `limit <= peak <= capacity`, and `size <= capacity` while it is handed out.
struct alignas(64) slot {  // a cache line
  void* data = nullptr;
  std::size_t limit = 0;            // elements that are handed out without a look
  std::size_t capacity = 0;         // elements there is memory for
  std::size_t size = 0;             // elements of the newest request
  std::size_t peak = 0;             // elements of the largest request since the last compaction
  std::uint64_t fence = 0;          // number of the fence before which it must not be used again; 0: none
  slot_life* life = nullptr;        // null at check level 0
  header_chunk* headers = nullptr;  // null until the first tensor
};

/// The slots of one element type, a stack: the first `active` of them are handed out.
///
/// Invariants: `active <= count <= room`, and `slots[count]` can be read and has limit 0: so one comparison
/// finds that there is no slot, that it is too small, and that something is to be done before it is used.
struct slot_list {
  static inline constinit slot nothing{};  // what a list without slots begins with; never written

  slot* slots = &nothing;
  std::size_t active = 0;
  std::uint64_t frame = 0;  // the innermost scope that has saved `active`; 0: none
  std::size_t count = 0;
  std::size_t room = 0;         // slots there is space for, besides the one at the end
  std::size_t peak_active = 0;  // most that were active since the last trim by a sweep
  element_info const* element = nullptr;
};

}  // namespace tidemark::detail
