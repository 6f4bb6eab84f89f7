// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory pressure: callbacks for a shortage of memory. Owns the callbacks.
#pragma once

#include <cstddef>
#include <functional>

#include <tidemark/core/detail/pressure_callbacks.hpp>

namespace tidemark {

/// A subscription to memory pressure; its callback is called while the subscription lives. Movable; a
/// moved-from subscription has no callback. A callback may end its own subscription.
///
/// The destructor waits for a call on another thread, unless that call waits for a callback of this thread.
/// If two callbacks end each other's subscriptions, the later destructor therefore returns at once.
class [[nodiscard]] pressure_subscription {
 public:
  [[nodiscard]] pressure_subscription() noexcept = default;

 private:
  friend pressure_subscription on_memory_pressure(std::function<void()> callback);
  detail::pressure_handle callback_;
};

/// Subscribes `callback` to memory pressure. The signalling thread calls it, without a lock, so it may create
/// and destroy resources and subscriptions, also its own. It must not throw.
///
/// A callback runs on one thread at a time; a signal of another thread skips a running callback. Callbacks
/// are called in order of subscription. Every pool subscribes a callback that posts a trim, and the pool's
/// owner trims in its next call.
///
/// @throws std::bad_alloc. Thread-safe. A forked child also has the callbacks; a callback that refers to the
/// stack of another thread must not be called there. A callback may fork; on the thread of a
/// `pressure_monitor`, the child must end or exec inside the callback.
[[nodiscard]] pressure_subscription on_memory_pressure(std::function<void()> callback);

/// Calls all subscribed callbacks, because memory is short. Called by the program or by a `pressure_monitor`.
/// Does nothing inside a callback. Thread-safe; allocates nothing. O(callbacks * log(callbacks)).
/// @return number of callbacks called
std::size_t signal_memory_pressure();

}  // namespace tidemark
