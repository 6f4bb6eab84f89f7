// SPDX-License-Identifier: Apache-2.0
/// @file
/// `fork_participant`: an object whose locks `fork()` takes, so that a child finds them free and what they
/// guard whole. `std_sync`: the atomics and locks of production. Owns nothing.
#pragma once

#include <pthread.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

using fork_clock = std::chrono::steady_clock;

/// Takes a lock, or gives up at the deadline: its holder may be waiting for a lock that a fork has. So locks need no
/// common order.
template <class Mutex>
[[nodiscard]] bool lock_until(fork_clock::time_point deadline, Mutex& mutex) noexcept {
  if (mutex.try_lock()) return true;
  do {
    std::this_thread::sleep_for(std::chrono::microseconds{20});
    if (mutex.try_lock()) return true;
  } while (fork_clock::now() < deadline);
  return false;
}

/// Sets how long a fork waits for locks in all, before it continues without them: 10 s. For tests.
/// @return what it was. Not while another thread forks.
std::chrono::nanoseconds set_fork_patience(std::chrono::nanoseconds total) noexcept;

/// Reports a violation. @throws std::system_error
[[noreturn]] TIDEMARK_COLD void refuse_reentry();
/// Whether the calling thread holds the mutex, if the C library tells.
[[nodiscard]] bool is_held_by_this_thread(pthread_mutex_t const& mutex) noexcept;
/// In a child: makes the calling thread the owner of a mutex that it held when it forked. The C library knows
/// the owner by the number that the thread had in the parent.
void hold_in_child(pthread_mutex_t& mutex) noexcept;

/// An object that any thread may use, also in a child that was forked while other threads used it.
///
/// Before a fork the locks of all participants are taken, so that no other thread is changing what they
/// guard; after it they are unlocked in the parent and in the child. Objects on the stacks of threads that do
/// not exist in the child are forgotten there, because that memory is reused.
///
/// A derived class calls `join` when it can be locked, and `leave` first of all in its destructor: an object
/// whose memory is reused without a destructor stays in the list, and breaks the next fork.
///
/// Invariants: `is_listed_ == (reachable from fork_list::newest)`; `is_listed_ || (!newer_ && !older_)`;
/// `!older_ || older_->newer_ == this`.
/// Thread-safe; O(1), no allocation but what the first one of a process costs.
class fork_participant {
 public:
  fork_participant(fork_participant const&) = delete;
  fork_participant& operator=(fork_participant const&) = delete;

 protected:
  fork_participant() noexcept = default;
  ~fork_participant() = default;
  void join() noexcept;
  /// Waits for a fork that is going on. Calling it again does nothing.
  void leave() noexcept;

 private:
  friend struct fork_list;
  /// Takes all of the object's locks, or none at the deadline.
  [[nodiscard]] virtual bool lock_for_fork(fork_clock::time_point deadline) noexcept = 0;
  virtual void unlock_after_fork(bool is_child) noexcept = 0;
  /// In a child, once all locks are free: cleans up after the threads that do not exist there. There is one
  /// thread, so that no lock need be taken; the forking thread may hold some.
  virtual void adapt_to_child() noexcept {}

  fork_participant* newer_ = nullptr;
  fork_participant* older_ = nullptr;
  unsigned long long stack_owner_ = 0;
  bool is_listed_ = false;
};

/// A mutex that is a participant of its own.
///
/// A lock that the forking thread holds itself, because it forks inside a call of an upstream, is left alone:
/// that thread continues in the child, owns the lock there, and unlocks it.
///
/// Invariant: `!(is_taken_ && is_forking_threads_)`.
template <class Mutex = std::mutex>
class fork_safe final : fork_participant {
 public:
  fork_safe() noexcept { join(); }
  fork_safe(fork_safe const&) = delete;
  fork_safe& operator=(fork_safe const&) = delete;
  ~fork_safe() { leave(); }

  /// Reports a violation and throws std::system_error if the calling thread holds the mutex, where the C
  /// library tells: a resource is called by the upstream that it calls.
  void lock() {
    if (is_held_by_this_thread()) [[unlikely]]
      refuse_reentry();
    mutex_.lock();
  }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  /// True if the calling thread holds the mutex, and may not lock it once more.
  [[nodiscard]] bool is_held_by_this_thread() noexcept {
    if constexpr (has_owner) return detail::is_held_by_this_thread(*mutex_.native_handle());
    return false;
  }
  void unlock() { mutex_.unlock(); }

  /// From now on `object.adapt_to_child()` is called in a child. @pre the mutex is locked, or no other thread
  /// can fork yet.
  template <class Object>
  void adapt_with(Object& object) noexcept {
    object_ = &object;
    adapt_ = [](void* of) noexcept { static_cast<Object*>(of)->adapt_to_child(); };
  }
  /// To be called first in the destructor of an object that adapts: forks ignore the mutex from now on.
  using fork_participant::leave;

 private:
  static constexpr bool has_owner = requires(Mutex& mutex) { mutex.native_handle(); };

  bool lock_for_fork(fork_clock::time_point deadline) noexcept override {
    is_forking_threads_ = is_held_by_this_thread();
    return is_forking_threads_ || (is_taken_ = lock_until(deadline, mutex_));
  }
  void unlock_after_fork(bool is_child) noexcept override {
    if constexpr (has_owner)
      if (is_child && is_forking_threads_) hold_in_child(*mutex_.native_handle());
    if (std::exchange(is_taken_, false)) mutex_.unlock();
  }
  void adapt_to_child() noexcept override {
    if (adapt_ != nullptr) adapt_(object_);
  }

  Mutex mutex_;
  bool is_taken_ = false;            // by a fork
  bool is_forking_threads_ = false;  // a fork has left it to its thread
  void* object_ = nullptr;
  void (*adapt_)(void*) noexcept = nullptr;
};

/// The number of the calling thread if the address is on its stack, and that stack is one that is used again
/// when the thread is gone; otherwise 0, also on the stack of another thread. At a thread's first call some
/// microseconds.
[[nodiscard]] unsigned long long stack_owner_of(void const* address) noexcept;
/// In a child: whether the thread that `stack_owner_of` returned does not exist there. @pre called by the
/// thread that forked, before it makes others.
[[nodiscard]] bool is_lost(unsigned long long stack_owner) noexcept;

/// The policy of code that takes locks as well.
struct std_sync : std_atomics {
  using mutex = fork_safe<>;
};

}  // namespace tidemark::detail
