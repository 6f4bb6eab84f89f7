// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_stack`: who called, and whose functions these are. Owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark::detail {

/// One function on the stack.
struct stack_frame {
  std::uintptr_t call = 0;      ///< an address in the call that it makes
  std::uintptr_t function = 0;  ///< where the function begins; 0: not known
};

/// The functions on this thread's stack, the innermost first. Allocates nothing.
class call_stack {
 public:
  static constexpr std::size_t max_depth = 64;

  /// From the function on that `return_address` lies in, which has called one of ours.
  explicit call_stack(void const* return_address) noexcept;

  [[nodiscard]] std::span<stack_frame const> frames() const noexcept { return {frames_.data(), size_}; }

 private:
  std::array<stack_frame, max_depth> frames_;
  std::size_t size_ = 0;
};

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
