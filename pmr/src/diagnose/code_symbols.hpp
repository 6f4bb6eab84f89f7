// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of functions, from the symbol tables of the files that are loaded.
#pragma once

#include <cstdint>

namespace tidemark::detail {

/// Where an address of code lies. The texts live as long as the process.
struct code_place {
  char const* module = nullptr;    ///< path of the program or library; null: not known
  std::uintptr_t offset = 0;       ///< in its file, as addr2line takes it
  char const* function = nullptr;  ///< mangled; null: not known
};

/// Looks an address up in the `symbol_table` of its module. O(symbols). Any thread, also in a child of fork().
[[nodiscard]] code_place find_code(std::uintptr_t address) noexcept;

}  // namespace tidemark::detail
