// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_classes`: the sizes of blocks that a device's pool keeps. Owns nothing.
#pragma once

#include <bit>
#include <cstddef>

#include <tidemark/core/units.hpp>

namespace tidemark::gpu::detail {

/// Sizes by arithmetic alone: multiples of 256 bytes up to 2 KiB, and beyond, four for each power of two,
/// where no request wastes more than a fifth of its block: 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10 KiB ...
///
/// With `x = (bytes - 1) / 256` in binary, the class is the length of `x` followed by its three leading
/// digits.
class device_classes {
 public:
  /// Every size is a multiple of this, and every block is aligned to it, as blocks of the driver.
  static constexpr std::size_t granule_bytes = 256;
  static constexpr std::size_t max_bytes = 1 * MiB;

  /// The least class for `bytes`, 0 among them. @pre `bytes <= max_bytes`. O(1).
  [[nodiscard]] static constexpr std::size_t index_of(std::size_t bytes) noexcept {
    const std::size_t x = (bytes - (bytes != 0 ? 1 : 0)) / granule_bytes;
    const auto shift = static_cast<std::size_t>(std::bit_width(x | steps)) - digits;
    return shift * steps + (x >> shift);
  }
  /// The size of a class. O(1).
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t index) noexcept {
    const std::size_t shift = index < 2 * steps ? 0 : index / steps - 1;
    return (index - shift * steps + 1) * granule_bytes << shift;
  }

 private:
  static constexpr std::size_t steps = 4;   // for each power of two
  static constexpr std::size_t digits = 3;  // of a number from `steps` on to twice that
};

/// Number of classes.
inline constexpr std::size_t device_class_count = device_classes::index_of(device_classes::max_bytes) + 1;

static_assert(device_classes::index_of(0) == 0 && device_classes::index_of(256) == 0 &&
              device_classes::index_of(257) == 1 && device_classes::bytes(0) == 256);
static_assert(device_classes::bytes(7) == 2 * KiB && device_classes::bytes(8) == 2 * KiB + 512 &&
              device_classes::bytes(11) == 4 * KiB && device_classes::bytes(12) == 5 * KiB);
static_assert(device_classes::bytes(device_class_count - 1) == device_classes::max_bytes);

}  // namespace tidemark::gpu::detail
