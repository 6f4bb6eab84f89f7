// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes in binary units: `64 * KiB`. Owns nothing.
#pragma once

#include <cstddef>

namespace tidemark {

inline constexpr std::size_t KiB = std::size_t{1} << 10;  ///< 1,024 bytes
inline constexpr std::size_t MiB = std::size_t{1} << 20;  ///< 1,048,576 bytes
inline constexpr std::size_t GiB = std::size_t{1} << 30;  ///< 1,073,741,824 bytes

}  // namespace tidemark
