// SPDX-License-Identifier: Apache-2.0
/// @file
/// `find_code`: function names from the symbol tables of loaded files. `owner_of`: the owner of a function.
/// Owns nothing.
#pragma once

#include <cstdint>

namespace tidemark::detail {

/// Place of a code address. The texts live as long as the process.
struct code_place {
  char const* module = nullptr;    ///< path of the program or library; null if unknown
  std::uintptr_t offset = 0;       ///< offset in its file, as used by addr2line
  char const* function = nullptr;  ///< mangled; null if unknown
};

/// Looks up an address in the symbol table of its module. O(symbols). Thread-safe, also in a forked child.
[[nodiscard]] code_place find_code(std::uintptr_t address) noexcept;

/// Owner of a function.
enum class code_owner : unsigned char {
  program,
  main,      ///< the program's `main`
  standard,  ///< the standard library, the C library, and our functions that construct a caller's objects
  resource,  ///< tidemark, or a resource of `std::pmr`
};

/// Determines the owner from the names of the function and its module. O(symbols of the module).
[[nodiscard]] code_owner owner_of(std::uintptr_t address) noexcept;

}  // namespace tidemark::detail
