// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_stack`: the calling functions of a thread. `find_code`: function names from the symbol tables of
/// loaded files. `owner_of`: the owner of a function.
/// `code_owner_cache`: owners that were looked up. They own nothing.
#pragma once

#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tidemark::detail {

/// One function on the stack.
struct stack_frame {
  std::uintptr_t call = 0;      ///< an address inside the call that it makes
  std::uintptr_t function = 0;  ///< first address of the function; 0 if unknown
};

/// The functions on this thread's stack, innermost first. Allocates nothing.
class call_stack {
 public:
  static constexpr std::size_t max_depth = 64;

  /// Begins with the function that contains `return_address`; that function has called the library.
  /// @param depth maximum number of functions
  explicit call_stack(void const* return_address, std::size_t depth = max_depth) noexcept
      : return_address_{reinterpret_cast<std::uintptr_t>(return_address)},
        depth_{std::min(depth, max_depth)} {
    _Unwind_Backtrace(visit, this);
    if (size_ == 0) frames_[size_++] = {return_address_ - 1, 0};  // the stack cannot be walked
  }

  [[nodiscard]] std::span<stack_frame const> frames() const noexcept { return {frames_.data(), size_}; }

 private:
  static _Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
    auto& to = *static_cast<call_stack*>(argument);
    const std::uintptr_t address = _Unwind_GetIP(context);
    if (to.size_ == 0 && address != to.return_address_) return _URC_NO_REASON;  // a function of the library
    if (to.size_ == to.depth_ || address == 0) return _URC_END_OF_STACK;
    // One less, because the instruction after the call may belong to another line or function.
    to.frames_[to.size_++] = {address - 1, _Unwind_GetRegionStart(context)};
    return _URC_NO_REASON;
  }

  std::uintptr_t return_address_;
  std::size_t depth_;
  std::array<stack_frame, max_depth> frames_;
  std::size_t size_ = 0;
};

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
  /// The calls on a stack from the innermost function of the program on; all calls if no function is of the
  /// program.
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
