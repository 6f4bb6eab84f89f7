// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trim_heap`: gives the system the free memory of `malloc`. Owns nothing.
#pragma once

namespace tidemark::detail {

/// Returns the pages of the heap that no block needs, with glibc; elsewhere it does nothing. O(free blocks).
void trim_heap() noexcept;

}  // namespace tidemark::detail
