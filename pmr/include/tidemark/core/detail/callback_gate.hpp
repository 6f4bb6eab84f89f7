// SPDX-License-Identifier: Apache-2.0
/// @file
/// `callback_gate`: runs a callback on one thread at a time, without a lock. Owns nothing.
#pragma once

#include <atomic>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/identity.hpp>

namespace tidemark::detail {

/// Guards a callback of the user, which may call anything of the library. No lock is held while the callback
/// runs, so that it waits for nobody. A second thread does not wait for the first one: it does not enter.
///
/// Invariant: `runner_` is the number of the thread between `enter` and `leave`, or 0. Any thread.
class callback_gate {
 public:
  /// Enters the gate. @return false if a thread runs the callback, or the gate is closed.
  [[nodiscard]] bool enter() noexcept {
    unsigned long long nobody = 0;
    if (!runner_.compare_exchange_strong(nobody, this_thread_number())) return false;
    if (!is_closed_.load()) return true;
    leave();
    return false;
  }
  /// The callback has returned. @pre this thread has entered.
  void leave() noexcept {
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

/// Leaves a gate that the calling thread has entered.
class gate_leaver {
 public:
  explicit gate_leaver(callback_gate& gate) noexcept : gate_{&gate} {}
  gate_leaver(gate_leaver const&) = delete;
  gate_leaver& operator=(gate_leaver const&) = delete;
  ~gate_leaver() { gate_->leave(); }

 private:
  callback_gate* gate_;
};

}  // namespace tidemark::detail
