// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arithmetic on addresses and sizes with power-of-two alignments, and hashes. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tidemark::detail {

static_assert(sizeof(std::size_t) == sizeof(std::uintptr_t), "tidemark computes with addresses as sizes");

[[nodiscard]] inline std::uintptr_t address_of(void const* memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory);
}

/// The smaller and the larger of two sizes. Not `std::min` and `std::max`, because <algorithm> has a third as
/// many lines as <memory_resource>.
[[nodiscard]] constexpr std::size_t min_of(std::size_t a, std::size_t b) noexcept { return b < a ? b : a; }
[[nodiscard]] constexpr std::size_t max_of(std::size_t a, std::size_t b) noexcept { return a < b ? b : a; }

/// A multiplicative hash with 2^64 divided by the golden ratio (Knuth, "The Art of Computer Programming" 3,
/// 6.4). Its upper bits are the best.
[[nodiscard]] constexpr std::uint64_t fibonacci_hash(std::uint64_t key) noexcept {
  return key * 0x9E37'79B9'7F4A'7C15u;
}

/// The smallest multiple of `align` that is >= `value`. @pre `align` is a power of two; the result fits.
[[nodiscard]] constexpr std::uintptr_t align_up(std::uintptr_t value, std::size_t align) noexcept {
  return (value + (align - 1)) & ~(align - 1);
}

/// The largest multiple of `align` that is <= `value`. @pre `align` is a power of two.
[[nodiscard]] constexpr std::uintptr_t align_down(std::uintptr_t value, std::size_t align) noexcept {
  return value & ~(align - 1);
}

/// `a + b`, or the largest size on overflow.
[[nodiscard]] constexpr std::size_t add_saturating(std::size_t a, std::size_t b) noexcept {
  return a > (std::numeric_limits<std::size_t>::max)() - b ? (std::numeric_limits<std::size_t>::max)()
                                                           : a + b;
}

/// `a * b`, or the largest size on overflow.
[[nodiscard]] constexpr std::size_t multiply_saturating(std::size_t a, std::size_t b) noexcept {
  return b != 0 && a > (std::numeric_limits<std::size_t>::max)() / b
             ? (std::numeric_limits<std::size_t>::max)()
             : a * b;
}

inline constexpr std::uint64_t fnv_basis = 0xCBF2'9CE4'8422'2325u;  ///< hash of the empty string
inline constexpr std::uint64_t fnv_prime = 0x100'0000'01B3u;

/// Continues a hash with the characters of a text.
[[nodiscard]] constexpr std::uint64_t fnv_more(std::uint64_t hash, std::string_view text) noexcept {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * fnv_prime;
  return hash;
}
/// Continues a hash with the bytes of a number, lowest byte first.
[[nodiscard]] constexpr std::uint64_t fnv_more(std::uint64_t hash, std::uint64_t value) noexcept {
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (value >> shift & 0xFF)) * fnv_prime;
  return hash;
}

}  // namespace tidemark::detail
