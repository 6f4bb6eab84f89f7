// SPDX-License-Identifier: Apache-2.0
/// @file
/// `owner_of`: whose a function is. Owns nothing.
#pragma once

#include <cstdint>

namespace tidemark::detail {

/// Whose a function is.
enum class code_owner : unsigned char {
  program,
  main,      ///< the program's `main`
  standard,  ///< the standard library, the C library, and functions of ours that construct a caller's objects
  resource,  ///< tidemark, or a resource of `std::pmr`
};

/// By the function's name and its module's. O(symbols of the module).
[[nodiscard]] code_owner owner_of(std::uintptr_t address) noexcept;

}  // namespace tidemark::detail
