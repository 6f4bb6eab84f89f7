// SPDX-License-Identifier: Apache-2.0
/// @file
/// `byte_range`: a range of host or device addresses. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A half-open range of addresses `[begin, end())`. Addresses are integers, because tidemark also computes
/// with addresses that the host must not touch.
struct byte_range {
  std::uintptr_t begin = 0;  ///< first address
  std::size_t size = 0;      ///< bytes; 0: no memory

  /// One past the last address.
  [[nodiscard]] constexpr std::uintptr_t end() const noexcept { return begin + size; }
  /// True if the size is 0.
  [[nodiscard]] constexpr bool empty() const noexcept { return size == 0; }
  /// True if `address` lies in the range.
  [[nodiscard]] constexpr bool contains(std::uintptr_t address) const noexcept {
    return address - begin < size;
  }
  /// The first address as a pointer.
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(begin); }

  friend constexpr bool operator==(byte_range const&, byte_range const&) = default;
};

}  // namespace tidemark
