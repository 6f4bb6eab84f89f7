// SPDX-License-Identifier: Apache-2.0
/// @file
/// `find_code`: function names from the symbol tables of loaded files. `owner_of`: the owner of a function.
/// `code_owner_cache`: owners that were looked up. They own nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "call_stack.hpp"

namespace tidemark::detail {

/// Place of a code address.
struct code_place {
  std::string module{};       ///< path of the program or library; empty if unknown
  std::uintptr_t offset = 0;  ///< offset in its file, as used by addr2line
  std::string function{};     ///< mangled; empty if unknown
};

/// Looks up an address in the symbol table of its module, and knows only the address without memory for texts.
/// O(symbols). Thread-safe, also in a forked child.
[[nodiscard]] code_place find_code(std::uintptr_t address) noexcept;

/// "load(model&) at trainer(+0x1a2b)". @throws std::bad_alloc
[[nodiscard]] std::string code_text(code_place const& place);

/// Owner of a function.
enum class code_owner : unsigned char {
  program,
  main,      ///< the program's `main`
  standard,  ///< the standard library, the C library, and our functions that construct a caller's objects
  resource,  ///< tidemark, or a resource of `std::pmr`
};

/// Determines the owner from the names of the function and its module. O(symbols of the module).
[[nodiscard]] code_owner owner_of(std::uintptr_t address) noexcept;

/// Owners of code addresses, cached so that each name is looked up once. Thread-safety: one thread at a time.
template <std::size_t Entries>
class code_owner_cache {
 public:
  /// O(1) if cached, otherwise as `owner_of`.
  [[nodiscard]] code_owner owner_at(std::uintptr_t address) noexcept {
    entry& known = entries_[(address ^ address >> 10) % Entries];
    if (known.address != address) known = {address, owner_of(address)};
    return known.owner;
  }
  /// The calls on a stack from the innermost function of the program on; all calls if no function is of the program.
  [[nodiscard]] std::span<stack_frame const> calls_of_program(std::span<stack_frame const> frames) noexcept {
    const auto first = std::ranges::find_if(frames, [this](stack_frame const& frame) {
      const code_owner owner = owner_at(frame.call);
      return owner == code_owner::program || owner == code_owner::main;
    });
    return first != frames.end() ? std::span{first, frames.end()} : frames;
  }

 private:
  struct entry {
    std::uintptr_t address = 0;
    code_owner owner{};
  };

  std::array<entry, Entries> entries_{};
};

}  // namespace tidemark::detail
