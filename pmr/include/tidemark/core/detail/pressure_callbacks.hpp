// SPDX-License-Identifier: Apache-2.0
/// @file
/// The callbacks of memory pressure, of users and of the library's own memory. Owns the list of callbacks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::detail {

struct pressure_callback;
struct pressure_ender {
  void operator()(pressure_callback* ended) const noexcept;
};
/// A callback is called as long as its handle lives, whose destructor waits for a call on another thread.
using pressure_handle = std::unique_ptr<pressure_callback, pressure_ender>;

/// Has a callback called, for an object: a child forgets the callback if the object was on the stack of a
/// thread that does not exist there; null: no object. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] pressure_handle call_under_pressure(void const* object, std::function<void()> callback);
/// As `signal_memory_pressure`.
std::size_t signal_pressure();

/// Held while a thread trims memory of another thread that is idle: a fork waits for that, and so does the
/// other thread if it wants to use its memory meanwhile.
[[nodiscard]] fork_safe<>& idle_memory_mutex() noexcept;
/// Calls `trim()` with the mutex, unless another thread has it.
template <class Trim>
void trim_idle_memory(Trim trim) noexcept {
  fork_safe<>& mutex = idle_memory_mutex();
  if (!mutex.try_lock()) return;
  trim();
  mutex.unlock();
}
/// Calls `claim()` until it is true: it is false while another thread trims the memory.
template <class Claim>
void wait_for_idle_memory(Claim claim) {
  do {
    const std::scoped_lock until_trimmed{idle_memory_mutex()};
  } while (!claim());
}

}  // namespace tidemark::detail
