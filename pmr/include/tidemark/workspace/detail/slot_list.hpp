// SPDX-License-Identifier: Apache-2.0
/// @file
/// `slot_list`: the slots that a workspace has for one element type.
#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/workspace/detail/shaped_view.hpp>

namespace tidemark::detail {

struct dlpack_header_cache;

/// What taken-back memory of a type reads as at level 1: a value that spoils whatever is computed from it, or
/// a byte, where any other value may be invalid.
template <class T>
inline constexpr auto poison_value = freed_fill;
template <std::floating_point T>
inline constexpr T poison_value<T> = std::numeric_limits<T>::quiet_NaN();
template <std::integral T>
inline constexpr T poison_value<T> = (std::numeric_limits<T>::max)();
template <std::floating_point T>
inline constexpr std::complex<T> poison_value<std::complex<T>>{std::numeric_limits<T>::quiet_NaN(),
                                                               std::numeric_limits<T>::quiet_NaN()};

/// What a list must know of its element type. There is one object for each type.
struct element_info {
  char const* name;
  std::size_t bytes;
  std::size_t align;
  void const* poison;        // this pattern …
  std::size_t poison_bytes;  // … so many bytes long, which divide those of an element
  std::size_t elements = 1;  // what statistics count for one: 64 for a word of bits
};

template <class T>
inline constexpr element_info element_of{element_name<T>, sizeof(T), alignof(T), &poison_value<T>,
                                         sizeof(poison_value<T>)};

/// What a word of packed bits is to its list, which is not that of std::uint64_t.
struct bit_word {
  std::uint64_t bits;
};
template <>
inline constexpr bit_word poison_value<bit_word>{~std::uint64_t{0}};
template <>
inline constexpr element_info element_of<bit_word>{
    "bits", sizeof(bit_word), alignof(bit_word), &poison_value<bit_word>, sizeof(bit_word), 64};

/// Element types that have a list at a fixed place in every workspace. The place of another type is their number.
template <class... Types>
struct element_types {
  static constexpr std::array<element_info const*, sizeof...(Types)> infos{&element_of<Types>...};
  // By types, because GCC 12 at -O0 compares no addresses of variables in a constant.
  template <class T>
  static constexpr std::size_t place = [] {
    std::size_t before = 0;
    (void)((std::same_as<T, Types> || (static_cast<void>(++before), false)) || ...);
    return before;
  }();
};
using fixed_elements = element_types<double, float, std::int64_t, std::int32_t, std::complex<float>,
                                     std::complex<double>, bool, bit_word>;

/// Memory for one acquisition at a time.
///
/// Invariants: `limit <= peak <= capacity`, and `size <= capacity` while it is acquired.
struct alignas(64) slot {  // a cache line
  void* data = nullptr;
  std::size_t limit = 0;                   // elements that the fast path may return
  std::size_t capacity = 0;                // elements there is memory for
  std::size_t size = 0;                    // elements of the newest request
  std::size_t peak = 0;                    // elements of the largest request since the last compaction
  std::uint64_t fence = 0;                 // number of the fence that its next use must await; 0: no fence
  slot_generation* generation = nullptr;   // null at check level 0
  dlpack_header_cache* headers = nullptr;  // null until the first tensor
};

/// The slots of one element type, a stack: the first `active` of them are acquired.
///
/// Invariants: `active <= count <= room`, and `slots[count]` can be read and has limit 0: so one comparison
/// finds that there is no slot, that it is too small, and that something is to be done before it is used.
struct slot_list {
  /// In place of the number of a scope: the owner uses the workspace outside all scopes.
  static constexpr std::uint64_t outside_frame = 2;
  static inline constinit slot nothing{};  // what a list without slots begins with; never written

  slot* items = &nothing;
  std::size_t active = 0;
  std::uint64_t frame = outside_frame;  // the innermost scope that has saved `active`
  std::size_t count = 0;
  std::size_t room = 0;         // slots there is space for, besides the one at the end
  std::size_t peak_active = 0;  // most that were active since the last trim by a sweep
  element_info const* element = nullptr;
};

}  // namespace tidemark::detail
