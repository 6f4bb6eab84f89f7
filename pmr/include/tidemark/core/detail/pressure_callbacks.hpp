// SPDX-License-Identifier: Apache-2.0
/// @file
/// The callbacks of memory pressure, of users and of the library's own memory, each behind a `callback_gate`.
/// Owns the list of callbacks.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>

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

/// Guards a callback of the user, which may call anything of the library. No lock is held while the callback
/// runs, so that it waits for nobody. A second thread does not wait for the first one: it does not enter.
///
/// Invariant: `runner_` is the number of the thread between `enter` and `unlock`, or 0. Any thread.
class callback_gate {
 public:
  /// Enters the gate. @return false if a thread runs the callback, or the gate is closed.
  [[nodiscard]] bool enter() noexcept {
    unsigned long long nobody = 0;
    if (!runner_.compare_exchange_strong(nobody, this_thread_number())) return false;
    if (!is_closed_.load()) return true;
    unlock();
    return false;
  }
  /// The callback has returned, or has thrown. @pre this thread has entered.
  void unlock() noexcept {
    runner_.store(0);
    runner_.notify_all();
  }
  /// No thread enters from now on. Waits as `wait`. @return as `wait`
  bool close() noexcept {
    is_closed_.store(true);
    return wait();
  }
  /// Waits until no thread runs the callback.
  /// @return false, at once, if the callback waits for the caller: it is run by the calling thread, or by a
  /// thread that waits in this function for a callback of the calling thread, directly or through others.
  bool wait() const noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_.load(); }
  /// In a child: the thread that ran the callback may not exist there.
  void adapt_to_child() noexcept {
    if (is_lost(runner_.load())) runner_.store(0);
  }

 private:
  // Sequentially consistent: a thread enters and then reads `is_closed_`, another one closes and then reads
  // `runner_`. One of the two sees the other.
  std::atomic<unsigned long long> runner_{0};
  std::atomic<bool> is_closed_{false};
};

}  // namespace tidemark::detail
