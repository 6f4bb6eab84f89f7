// SPDX-License-Identifier: Apache-2.0
/// @file
/// `find_code`: names of functions, from the symbol tables of the files that are loaded; `owner_of`: whose a
/// function is. Owns nothing.
#pragma once

#include <cstdint>

namespace tidemark::detail {

/// Where an address of code lies. The texts live as long as the process.
struct code_place {
  char const* module = nullptr;    ///< path of the program or library; null: not known
  std::uintptr_t offset = 0;       ///< in its file, as addr2line takes it
  char const* function = nullptr;  ///< mangled; null: not known
};

/// Looks an address up in the symbol table of its module. O(symbols). Any thread, also in a child of fork().
[[nodiscard]] code_place find_code(std::uintptr_t address) noexcept;

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
