// SPDX-License-Identifier: Apache-2.0
/// @file
/// The use-after-epoch detector: reports uses of buffers that their epoch has reclaimed. Owns nothing.
#pragma once

#include <atomic>
#include <initializer_list>
#include <stdexcept>

#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/storage.hpp>

namespace tidemark {

/// Thrown by the detector if the policy is `throw_exception`. `what()` names the operation, the operand's
/// role, and the epoch: `use-after-epoch: mul: rhs was reclaimed when epoch 2 "step" ended`.
class use_after_epoch : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Action of the detector on a finding. `report` calls the `violation_handler`, which by default prints the
/// finding and aborts. `throw_exception` throws `use_after_epoch`.
enum class use_after_epoch_policy { report, throw_exception };

namespace detail {
// Set from the environment before main(). Constant-initialised, so earlier reads are safe.
extern std::atomic<bool> epoch_detector_state;
}  // namespace detail

/// True if the detector is on. Initially on if the environment variable `TIDEMARK_EPOCH_DEBUG` is set and is
/// neither empty nor "0". The variable is read once. Any thread.
[[nodiscard]] inline bool epoch_detector() noexcept {
  return detail::epoch_detector_state.load(std::memory_order_relaxed);
}

/// Switches the detector on or off. The detector also finds blocks reclaimed while it was off, but may not
/// know their epoch. @return the previous state. Any thread.
bool set_epoch_detector(bool on) noexcept;

/// Sets the action on a finding. @return the previous policy. Any thread.
use_after_epoch_policy set_use_after_epoch_policy(use_after_epoch_policy policy) noexcept;

/// An argument of an operation, and its name in messages: `{"rhs", b}`.
struct named_operand {
  /// @param handle a `buffer` or `buffer_view`
  template <detail::has_storage Handle>
  named_operand(char const* role, Handle const& handle) noexcept : role_{role}, storage_{&handle.storage()} {}

  char const* role_;
  detail::storage const* storage_;
};

namespace detail {
TIDEMARK_COLD void find_reclaimed(char const* operation, std::initializer_list<named_operand> operands);
/// Reports `operator[]` of a dead handle, and aborts if the handler returns. @throws use_after_epoch if the
/// policy is to throw
[[noreturn]] TIDEMARK_COLD void refuse_element(named_operand const& dead);
}  // namespace detail

/// Reports the first operand whose storage was reclaimed by its epoch or buffer group. Each access of
/// `buffer` and `buffer_view` makes the same check. Call it at the start of your own operations to get their
/// names in messages.
///
/// ```cpp
/// void mul(buffer<float> const& lhs, buffer<float> const& rhs, buffer<float>& out) {
///   require_live("mul", {{"lhs", lhs}, {"rhs", rhs}, {"out", out}});
/// ```
/// With the detector off, the cost is one predicted branch, and storing the operands on the stack. Empty,
/// released and moved-from buffers are not reported.
/// @throws use_after_epoch if the policy is to throw. Any thread.
inline void require_live(char const* operation, std::initializer_list<named_operand> operands) {
  if (epoch_detector()) [[unlikely]]
    detail::find_reclaimed(operation, operands);
}

}  // namespace tidemark
