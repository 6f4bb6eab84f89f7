// SPDX-License-Identifier: Apache-2.0
#include "call_stack.hpp"

#include <unwind.h>

#include <algorithm>

namespace tidemark::detail {
namespace {

struct walk {
  std::uintptr_t return_address;
  std::span<stack_frame> frames;
  std::size_t size = 0;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& to = *static_cast<walk*>(argument);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (to.size == 0 && address != to.return_address) return _URC_NO_REASON;  // ours
  if (to.size == to.frames.size()) return _URC_END_OF_STACK;
  // One less, because what follows the call may be another line, or another function.
  to.frames[to.size++] = {address - 1, _Unwind_GetRegionStart(context)};
  return _URC_NO_REASON;
}

}  // namespace

call_stack::call_stack(void const* return_address, std::size_t depth) noexcept {
  walk to{reinterpret_cast<std::uintptr_t>(return_address),
          std::span{frames_}.first(std::min(depth, max_depth))};
  _Unwind_Backtrace(visit, &to);
  size_ = to.size;
  if (size_ == 0) frames_[size_++] = {to.return_address - 1, 0};  // a stack that cannot be walked
}

}  // namespace tidemark::detail
