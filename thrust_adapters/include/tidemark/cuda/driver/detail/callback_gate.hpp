// SPDX-License-Identifier: Apache-2.0
/// @file
/// `callback_gate`: keeps a callback from running on two threads at once. Owns nothing.
#pragma once

#include <atomic>

#include <tidemark/core/detail/thread_ownership.hpp>

namespace tidemark::gpu::detail {

/// Guards a user callback, which may call any function of the library. No lock is held while the callback
/// runs, so the callback waits for no other thread. A second thread does not wait and does not enter.
///
/// Invariant: `runner_` is the number of the thread between `enter` and `unlock`, or 0. Thread-safe.
class callback_gate {
 public:
  /// Enters the gate. @return false if a thread runs the callback or the gate is closed.
  [[nodiscard]] bool enter() noexcept {
    unsigned long long nobody = 0;
    if (!runner_.compare_exchange_strong(nobody, tidemark::detail::this_thread_number())) return false;
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

 private:
  // Sequentially consistent: one thread enters and then reads `is_closed_`; another closes and then reads
  // `runner_`. At least one sees the other.
  std::atomic<unsigned long long> runner_{0};
  std::atomic<bool> is_closed_{false};
};

}  // namespace tidemark::gpu::detail
