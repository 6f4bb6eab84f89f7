// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preconditions that a call reports by an exception.
#pragma once

#include <cstddef>

namespace tidemark::detail {

/// @throws std::invalid_argument with a sentence if `align` is not a power of two.
void require_power_of_two(char const* kind, char const* name, std::size_t align);

}  // namespace tidemark::detail
