// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory pressure: callbacks for when memory gets short, which this owns.
#pragma once

#include <cstddef>
#include <functional>

#include <tidemark/core/detail/pressure_callbacks.hpp>

namespace tidemark {

/// A callback is called as long as its subscription lives. Movable; a moved-from subscription has no
/// callback. The destructor waits for a call on another thread, unless that call waits in the same way for a
/// callback of this thread: of two callbacks that end each other's subscriptions, the later one does not
/// wait. A callback may end its own subscription.
class [[nodiscard]] pressure_subscription {
 public:
  [[nodiscard]] pressure_subscription() noexcept = default;

 private:
  friend pressure_subscription on_memory_pressure(std::function<void()> callback);
  detail::pressure_handle callback_;
};

/// Has `callback` called whenever memory gets short, on the thread that signals it. It must not throw. No
/// lock is held meanwhile, so that it may make and end resources and subscriptions, also its own. It runs on
/// one thread at a time: a signal of another thread leaves out a callback that is running. Callbacks are
/// called in the order of their subscriptions. Every pool subscribes itself: its callback only posts a trim,
/// which the pool's owner does in its next call. @throws std::bad_alloc. Thread-safe. A child that is forked
/// has the callbacks, too; one that refers to the stack of another thread must not be called there. A
/// callback may fork; on the thread of a `pressure_monitor` its child must end or exec inside the callback.
[[nodiscard]] pressure_subscription on_memory_pressure(std::function<void()> callback);

/// Calls all callbacks that are subscribed: memory is short. By hand, or by a `pressure_monitor`. Inside a
/// callback it does nothing. Thread-safe; allocates nothing. O(callbacks * log(callbacks)).
/// @return how many were called.
std::size_t signal_memory_pressure();

}  // namespace tidemark
