// SPDX-License-Identifier: Apache-2.0
/// @file
/// `symbol_table`: the functions of a program or library, as its file has them.
#pragma once

#include <cstdint>
#include <span>

#if __has_include(<link.h>)
#include <link.h>
#endif

namespace tidemark::detail {

/// Reads the table that a linker writes for debuggers, or else the one for the loader. Without -rdynamic most
/// functions of a program are in the first alone.
///
/// The file may be another by now than the one that is loaded; then names may be wrong, and nothing worse.
/// Thread-safety: any thread.
class symbol_table {
 public:
  /// Of a file in the format ELF; empty if it is something else, or cannot be read.
  explicit symbol_table(char const* path) noexcept;

  /// The mangled name of the function that has the address in it, as the file numbers addresses; null: there
  /// is no such symbol. Lives as long as the process. O(symbols).
  [[nodiscard]] char const* function_at(std::uintptr_t address) const noexcept;
  /// Whether the addresses of the file are those in memory: it is a program that cannot lie elsewhere.
  [[nodiscard]] bool is_at_fixed_address() const noexcept { return is_at_fixed_address_; }

 private:
#if __has_include(<link.h>)
  // In the file, which stays in memory as long as the process lives.
  std::span<ElfW(Sym) const> symbols_;
  std::span<char const> names_;  // ends with a zero
#endif
  bool is_at_fixed_address_ = false;
};

}  // namespace tidemark::detail
