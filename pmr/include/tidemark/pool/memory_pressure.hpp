// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory pressure: callbacks for when memory gets short, which this owns.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tidemark {

class pressure_subscription;

namespace detail {

struct pressure_callback {
  std::function<void()> call;
  unsigned long long stack_owner;  // `stack_owner_of` the object that the callback belongs to
  ~pressure_callback();            // Waits until it is not running, and is not called any more.
};
/// As `on_memory_pressure`, for an object: a child forgets the callback if the object was on the stack of a
/// thread that does not exist there.
[[nodiscard]] pressure_subscription on_memory_pressure_of(void const* object, std::function<void()> callback);

}  // namespace detail

/// A callback is called as long as its subscription lives. Movable; moved-from and default-made there is no
/// callback. Once the destructor has returned the callback is not running any more.
class pressure_subscription {
 public:
  pressure_subscription() noexcept = default;

 private:
  friend pressure_subscription detail::on_memory_pressure_of(void const* object,
                                                             std::function<void()> callback);
  std::unique_ptr<detail::pressure_callback> callback_;
};

/// Has `callback` called whenever memory gets short, on the thread that signals it. It must not throw, nor
/// subscribe or unsubscribe. Callbacks are called in no particular order. Every pool subscribes itself: its
/// callback only posts a trim, which the pool's owner does in its next call. @throws std::bad_alloc.
/// Thread-safe. A child that is forked has the callbacks, too; one that refers to the stack of another thread
/// must not be called there. A callback may fork; on the thread of a `pressure_monitor` its child must end or
/// exec inside the callback.
[[nodiscard]] pressure_subscription on_memory_pressure(std::function<void()> callback);

/// Calls all callbacks: memory is short. By hand, or by a `pressure_monitor`. Thread-safe.
/// @return how many were called.
std::size_t signal_memory_pressure();

}  // namespace tidemark
