// SPDX-License-Identifier: Apache-2.0
/// @file
/// Callbacks for memory pressure, of users and of the library's own memory, each behind a `callback_gate`.
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
/// Keeps a callback active. Its destructor waits for a call on another thread.
using pressure_handle = std::unique_ptr<pressure_callback, pressure_ender>;

/// Registers a callback for an object. A child forgets the callback if the object was on the stack of a
/// thread that the child lacks. Null: no object. @throws std::bad_alloc. Thread-safe.
[[nodiscard]] pressure_handle call_under_pressure(void const* object, std::function<void()> callback);
/// As `signal_memory_pressure`.
std::size_t signal_pressure();

/// Held while a thread trims idle memory of another thread. A fork waits for the mutex, and so does the other
/// thread if it needs its memory.
[[nodiscard]] fork_safe<>& idle_memory_mutex() noexcept;
/// Calls `trim()` under the mutex, unless another thread holds the mutex.
template <class Trim>
void trim_idle_memory(Trim trim) noexcept {
  fork_safe<>& mutex = idle_memory_mutex();
  if (!mutex.try_lock()) return;
  trim();
  mutex.unlock();
}
/// Repeats `claim()` until it returns true. It returns false while another thread trims the memory.
template <class Claim>
void wait_for_idle_memory(Claim claim) {
  do {
    const std::scoped_lock until_trimmed{idle_memory_mutex()};
  } while (!claim());
}

/// Guards a user callback, which may call any function of the library. No lock is held while the callback
/// runs, so the callback waits for no other thread. A second thread does not wait and does not enter.
///
/// Invariant: `runner_` is the number of the thread between `enter` and `unlock`, or 0. Thread-safe.
class callback_gate {
 public:
  /// Enters the gate. @return false if a thread runs the callback or the gate is closed.
  [[nodiscard]] bool enter() noexcept {
    unsigned long long nobody = 0;
    if (!runner_.compare_exchange_strong(nobody, this_thread_number())) return false;
    if (!is_closed_.load()) return true;
    unlock();
    return false;
  }
  /// Leaves the gate after the callback has returned or thrown. @pre this thread has entered.
  void unlock() noexcept {
    runner_.store(0);
    runner_.notify_all();
  }
  /// Lets no thread enter from now on, then waits as `wait` does. @return as `wait`
  bool close() noexcept {
    is_closed_.store(true);
    return wait();
  }
  /// Waits until no thread runs the callback.
  /// @return false, at once, if the wait would be circular: the calling thread runs the callback, or the
  /// thread that runs it waits here, directly or through others, for a callback of the calling thread.
  bool wait() const noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_.load(); }
  /// Resets the gate in a child if the thread that ran the callback does not exist there.
  void adapt_to_child() noexcept {
    if (is_lost(runner_.load())) runner_.store(0);
  }

 private:
  // Sequentially consistent: one thread enters and then reads `is_closed_`; another closes and then reads
  // `runner_`. At least one sees the other.
  std::atomic<unsigned long long> runner_{0};
  std::atomic<bool> is_closed_{false};
};

}  // namespace tidemark::detail
