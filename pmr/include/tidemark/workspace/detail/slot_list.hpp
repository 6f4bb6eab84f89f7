// SPDX-License-Identifier: Apache-2.0
/// @file
/// `slot_list`: the slots of one element type in a workspace.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>

namespace tidemark::detail {

struct dlpack_header_cache;

/// Fill of freed memory of a type at level 1: a value that spoils every computation. Types without such a
/// value are filled with a byte.
template <class T>
inline constexpr auto poison_value = freed_fill;
template <std::floating_point T>
inline constexpr T poison_value<T> = std::numeric_limits<T>::quiet_NaN();
template <std::integral T>
inline constexpr T poison_value<T> = (std::numeric_limits<T>::max)();
template <complex_number T>
inline constexpr std::array poison_value<T>{poison_value<part_of<T>>, poison_value<part_of<T>>};

/// Description of an element type for its list. Each type has one object.
struct element_info {
  char const* name;
  std::size_t bytes, align;
  void const* poison;        // fill of freed memory …
  std::size_t poison_bytes;  // … with a size that divides the bytes of an element
  std::size_t elements = 1;  // elements in statistics per element here: 64 for a word of bits
};

template <class T>
inline constexpr element_info element_of{element_name<T>, sizeof(T), alignof(T), &poison_value<T>,
                                         sizeof(poison_value<T>)};

/// Element type of packed bits; their list is separate from the list of std::uint64_t.
struct bit_word {
  std::uint64_t bits;
};
template <>
inline constexpr bit_word poison_value<bit_word>{~std::uint64_t{0}};
template <>
inline constexpr element_info element_of<bit_word>{
    "bits", sizeof(bit_word), alignof(bit_word), &poison_value<bit_word>, sizeof(bit_word), 64};

/// Number of the element types whose list has a fixed place in every workspace; `fixed_place` of other types.
inline constexpr std::size_t fixed_elements = 8;
template <class T>
inline constexpr std::size_t fixed_place = fixed_elements;
template <>
inline constexpr std::size_t fixed_place<double> = 0;
template <>
inline constexpr std::size_t fixed_place<float> = 1;
template <>
inline constexpr std::size_t fixed_place<std::int64_t> = 2;
template <>
inline constexpr std::size_t fixed_place<std::int32_t> = 3;
template <complex_number T>
inline constexpr std::size_t fixed_place<T> = sizeof(T) == 8 ? 4 : 5;
template <>
inline constexpr std::size_t fixed_place<bool> = 6;
template <>
inline constexpr std::size_t fixed_place<bit_word> = 7;

/// Memory of one acquisition at a time.
///
/// Invariants: `limit <= peak <= capacity`, and `size <= capacity` while the slot is acquired.
struct alignas(64) slot {  // a cache line
  void* data = nullptr;
  std::size_t limit = 0;                   // maximum elements on the fast path
  std::size_t capacity = 0;                // elements that the memory holds
  std::size_t size = 0;                    // elements of the newest request
  std::size_t peak = 0;                    // elements of the largest request since the last compaction
  std::uint64_t fence = 0;                 // number of the fence to await before the next use; 0: no fence
  slot_generation* generation = nullptr;   // null at check level 0
  dlpack_header_cache* headers = nullptr;  // null until the first tensor
};

/// The slots of one element type: a stack whose first `active` slots are acquired.
///
/// Invariants: `active <= count <= room`, and `items[count]` is readable with limit 0. One comparison
/// therefore detects a missing slot, a slot that is too small, and a slot that needs work before its use.
struct slot_list {
  /// Scope number for uses by the owner outside all scopes.
  static constexpr std::uint64_t outside_frame = 2;
  static inline constinit slot nothing{};  // first element of a list without slots; never written

  slot* items = &nothing;
  std::size_t active = 0;
  std::uint64_t frame = outside_frame;  // innermost scope that has saved `active`
  std::size_t count = 0;
  std::size_t room = 0;         // capacity of `items`, without the slot at the end
  std::size_t peak_active = 0;  // maximum of `active` since the last trim by a sweep
  element_info const* element = nullptr;
};

}  // namespace tidemark::detail
