// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_stack`: who called. Owns nothing.
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
  std::uintptr_t call = 0;      ///< an address in the call that it makes
  std::uintptr_t function = 0;  ///< where the function begins; 0: not known
};

/// The functions on this thread's stack, the innermost first. Allocates nothing.
class call_stack {
 public:
  static constexpr std::size_t max_depth = 64;

  /// From the function on that `return_address` lies in, which has called one of ours.
  /// @param depth functions at most
  explicit call_stack(void const* return_address, std::size_t depth = max_depth) noexcept
      : return_address_{reinterpret_cast<std::uintptr_t>(return_address)},
        depth_{std::min(depth, max_depth)} {
    _Unwind_Backtrace(visit, this);
    if (size_ == 0) frames_[size_++] = {return_address_ - 1, 0};  // a stack that cannot be walked
  }

  [[nodiscard]] std::span<stack_frame const> frames() const noexcept { return {frames_.data(), size_}; }

 private:
  static _Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
    auto& to = *static_cast<call_stack*>(argument);
    const std::uintptr_t address = _Unwind_GetIP(context);
    if (to.size_ == 0 && address != to.return_address_) return _URC_NO_REASON;  // ours
    if (to.size_ == to.depth_) return _URC_END_OF_STACK;
    // One less, because what follows the call may be another line, or another function.
    to.frames_[to.size_++] = {address - 1, _Unwind_GetRegionStart(context)};
    return _URC_NO_REASON;
  }

  std::uintptr_t return_address_;
  std::size_t depth_;
  std::array<stack_frame, max_depth> frames_;
  std::size_t size_ = 0;
};

}  // namespace tidemark::detail
