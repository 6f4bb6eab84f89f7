// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_stack`: who called. Owns nothing.
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
  /// @param depth functions at most
  explicit call_stack(void const* return_address, std::size_t depth = max_depth) noexcept;

  [[nodiscard]] std::span<stack_frame const> frames() const noexcept { return {frames_.data(), size_}; }

 private:
  std::array<stack_frame, max_depth> frames_;
  std::size_t size_ = 0;
};

}  // namespace tidemark::detail
