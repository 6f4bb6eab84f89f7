// SPDX-License-Identifier: Apache-2.0
/// @file
/// The use-after-epoch detector: finds uses of a buffer that its epoch has reclaimed. Owns nothing.
#pragma once

#include <atomic>
#include <initializer_list>
#include <stdexcept>

#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/storage.hpp>

namespace tidemark {

/// What the detector throws, if it is to throw. `what()` names the operation, the operand's role, and the
/// epoch: `use-after-epoch: mul: rhs was reclaimed when epoch 2 "step" ended`.
class use_after_epoch : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// What the detector does with a finding: report it to the `violation_handler`, which prints it and aborts
/// unless it was replaced; or throw `use_after_epoch`.
enum class use_after_epoch_policy { report, throw_exception };

namespace detail {
// Set before main() from the environment. Constant-initialised, so that it may be read at any time.
extern std::atomic<bool> epoch_detector_state;
}  // namespace detail

/// Whether the detector is on. At the start it is if the environment variable `TIDEMARK_EPOCH_DEBUG` is set
/// to anything but the empty string or "0"; it is read once. Any thread.
[[nodiscard]] inline bool epoch_detector() noexcept {
  return detail::epoch_detector_state.load(std::memory_order_relaxed);
}

/// Switches the detector on or off. It also finds what was reclaimed while it was off, but may not know then
/// which epoch it was. @return what it was before. Any thread.
bool set_epoch_detector(bool on) noexcept;

/// Sets what a finding does. @return the former policy. Any thread.
use_after_epoch_policy set_use_after_epoch_policy(use_after_epoch_policy policy) noexcept;

/// An argument of an operation, with the name that it has in messages: `{"rhs", b}`.
struct named_operand {
  /// Of a `buffer` or `buffer_view`.
  template <detail::has_storage Handle>
  named_operand(char const* role, Handle const& handle) noexcept : role_{role}, storage_{&handle.storage()} {}

  char const* role_;
  detail::storage const* storage_;
};

namespace detail {
TIDEMARK_COLD void find_reclaimed(char const* operation, std::initializer_list<named_operand> operands);
/// Reports `operator[]` of a dead handle, and aborts if the handler returns. @throws use_after_epoch if the
/// policy says so.
[[noreturn]] TIDEMARK_COLD void refuse_element(named_operand const& dead);
}  // namespace detail

/// Reports the first operand whose storage its epoch or buffer group has reclaimed. Each access of `buffer`
/// and `buffer_view` does the same; call it at the start of your own operations, so that messages name these.
///
/// ```cpp
/// void mul(buffer<float> const& lhs, buffer<float> const& rhs, buffer<float>& out) {
///   require_live("mul", {{"lhs", lhs}, {"rhs", rhs}, {"out", out}});
/// ```
/// With the detector off it costs one predicted branch, and putting the operands on the stack. An empty,
/// released or moved-from buffer is not reported.
/// @throws use_after_epoch if the policy says so. Any thread.
inline void require_live(char const* operation, std::initializer_list<named_operand> operands) {
  if (epoch_detector()) [[unlikely]]
    detail::find_reclaimed(operation, operands);
}

}  // namespace tidemark
