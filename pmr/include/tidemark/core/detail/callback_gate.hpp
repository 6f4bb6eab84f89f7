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
  /// No thread enters from now on. Waits for the thread that runs the callback, unless it is the caller.
  void close() noexcept {
    is_closed_.store(true);
    wait_for_others();
  }
  /// Waits until no other thread runs the callback.
  void wait_for_others() const noexcept {
    for (unsigned long long runner = runner_.load(); runner != 0 && runner != this_thread_number();
         runner = runner_.load())
      runner_.wait(runner);
  }
  /// True if the calling thread runs the callback.
  [[nodiscard]] bool is_entered_by_this_thread() const noexcept {
    return runner_.load() == this_thread_number();
  }
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
