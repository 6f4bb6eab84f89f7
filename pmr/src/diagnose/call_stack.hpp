// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_stack`: the calling functions of a thread. Owns nothing.
#pragma once

#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace tidemark::detail
