// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory pressure: who is told when memory gets short. Owns nothing but the list of those.
#pragma once

#include <cstddef>
#include <functional>
#include <list>

namespace tidemark {

/// A callback that is in the list as long as this lives. Movable; moved-from and default-made it stands for
/// none.
class pressure_subscription {
 public:
  pressure_subscription() noexcept = default;
  pressure_subscription(pressure_subscription&& other) noexcept;
  pressure_subscription& operator=(pressure_subscription&& other) noexcept;
  /// Takes the callback out. It is not running any more when this returns.
  ~pressure_subscription();

 private:
  friend pressure_subscription on_memory_pressure(std::function<void()> callback);
  using position = std::list<std::function<void()>>::iterator;
  explicit pressure_subscription(position where) noexcept : where_{where}, subscribed_{true} {}

  position where_;
  bool subscribed_ = false;
};

/// Has `callback` called whenever memory gets short, on the thread that signals it. It must not throw, nor
/// subscribe or unsubscribe. Every pool subscribes itself: its callback only asks the pool's owner to trim,
/// who does so in its next call. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] pressure_subscription on_memory_pressure(std::function<void()> callback);

/// Calls all callbacks: memory is short. By hand, or by a `pressure_monitor`. Thread-safe.
/// @return how many were called.
std::size_t signal_memory_pressure();

}  // namespace tidemark
