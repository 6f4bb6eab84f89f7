// SPDX-License-Identifier: Apache-2.0
/// @file
/// FNV-1a (Fowler, Noll, Vo), a hash of 64 bits that is continued value by value.
#pragma once

#include <cstdint>
#include <string_view>

namespace tidemark::detail {

inline constexpr std::uint64_t fnv_basis = 0xCBF2'9CE4'8422'2325u;  ///< the hash of nothing
inline constexpr std::uint64_t fnv_prime = 0x100'0000'01B3u;

/// Continues a hash with the characters of a text.
[[nodiscard]] constexpr std::uint64_t fnv_more(std::uint64_t hash, std::string_view text) noexcept {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * fnv_prime;
  return hash;
}
/// Continues a hash with the bytes of a number, the lowest first.
[[nodiscard]] constexpr std::uint64_t fnv_more(std::uint64_t hash, std::uint64_t value) noexcept {
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (value >> shift & 0xFF)) * fnv_prime;
  return hash;
}

}  // namespace tidemark::detail
