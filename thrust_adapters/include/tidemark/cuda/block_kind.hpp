// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::block_kind`: what kinds of memory the driver gives in blocks. Owns nothing.
#pragma once

#include <cstddef>

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::cuda {  // NOLINT(modernize-concat-nested-namespaces)

/// A kind of memory, by the call that gives it.
enum class block_kind {
  device,   ///< `cuMemAlloc`: of a device; the host must not touch it
  pinned,   ///< `cuMemHostAlloc`: of the host, for copies that go on beside it
  managed,  ///< `cuMemAllocManaged`: moves to whoever touches it
};

/// Blocks of the driver start at multiples of this, of whatever kind they are; it promises no more.
inline constexpr std::size_t driver_block_alignment = 256;

}  // namespace tidemark::cuda
