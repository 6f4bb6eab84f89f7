// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory pressure: callbacks for a shortage of memory. Owns the callbacks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tidemark {

class pressure_subscription;

namespace detail {
/// Subscribes a callback for an object. A child forgets the callback if the object was on the stack of a
/// thread that the child lacks. Null: no object. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] pressure_subscription call_under_pressure(void const* object, std::function<void()> callback);
}  // namespace detail

/// A subscription to memory pressure; its callback is called while the subscription lives. Movable; a
/// moved-from subscription has no callback. A callback may end its own subscription and others.
///
/// The destructor waits for a call on another thread.
class [[nodiscard]] pressure_subscription {
 public:
  [[nodiscard]] pressure_subscription() noexcept = default;
  pressure_subscription(pressure_subscription&&) noexcept = default;
  pressure_subscription& operator=(pressure_subscription&&) noexcept = default;

 private:
  friend pressure_subscription detail::call_under_pressure(void const*, std::function<void()>);
  std::shared_ptr<void> callback_;  // its deleter ends the subscription
};

/// Subscribes `callback` to memory pressure. The signalling thread calls it, without a lock, so it may create
/// and destroy resources and subscriptions, also its own. It must not throw.
///
/// Callbacks are called in order of subscription. Every pool subscribes a callback that posts a trim, and the
/// pool's owner trims in its next call.
///
/// @throws std::bad_alloc. Thread-safe. A forked child also has the callbacks; a callback that refers to the
/// stack of another thread must not be called there. A callback may fork; on the thread of a
/// `pressure_monitor`, the child must end or exec inside the callback.
[[nodiscard]] pressure_subscription on_memory_pressure(std::function<void()> callback);

/// Calls all subscribed callbacks, because memory is short. Called by the program or by a `pressure_monitor`.
/// Does nothing inside a callback, or while another thread signals. Thread-safe; allocates nothing.
/// O(callbacks * log(callbacks)).
/// @return number of callbacks called
std::size_t signal_memory_pressure();

}  // namespace tidemark
