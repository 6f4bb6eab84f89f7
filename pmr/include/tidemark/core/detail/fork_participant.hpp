// SPDX-License-Identifier: Apache-2.0
/// @file
/// `fork_participant`: an object whose locks `fork()` takes. A child then finds the locks free and the
/// guarded data consistent. `std_sync`: the production atomics and locks. Owns nothing.
#pragma once

#include <pthread.h>

#include <mutex>  // durations: <chrono> also includes <sstream>
#include <utility>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

using fork_clock = std::chrono::steady_clock;

/// Sleeps for 20 us. In the library, because <thread> makes each source slower to compile.
/// @return false at or after the deadline
[[nodiscard]] bool sleep_before(fork_clock::time_point deadline) noexcept;

/// Takes a lock, or stops at the deadline, because its holder may wait for a lock of the fork. Locks
/// therefore need no common order.
template <class Mutex>
[[nodiscard]] bool lock_until(fork_clock::time_point deadline, Mutex& mutex) noexcept {
  for (bool is_early = true; !mutex.try_lock(); is_early = sleep_before(deadline))
    if (!is_early) return false;
  return true;
}

/// Sets how long a fork waits for locks in total before it continues without them; the default is 10 s. For
/// tests.
/// @return the previous value. Not thread-safe: no other thread may fork meanwhile.
std::chrono::nanoseconds set_fork_patience(std::chrono::nanoseconds total) noexcept;

/// Reports a violation. @throws std::system_error
[[noreturn]] TIDEMARK_COLD void refuse_reentry();
/// True if the calling thread holds the mutex. False if the C library cannot tell.
[[nodiscard]] bool is_held_by_this_thread(pthread_mutex_t const& mutex) noexcept;
/// Makes the calling thread the owner of a mutex that it held when it forked. For the child: the C library
/// identifies the owner by the thread's number in the parent.
void adopt_lock_in_child(pthread_mutex_t& mutex) noexcept;

/// An object that any thread may use, also in a child forked while other threads used it.
///
/// A fork locks all participants first, so that no other thread changes the guarded data. It unlocks them in
/// the parent and in the child. The child forgets objects on stacks of threads that it lacks, because that
/// memory is reused.
///
/// A derived class calls `join` when it can be locked, and `leave` first in its destructor. An object whose
/// memory is reused without a destructor stays in the list, and breaks the next fork.
///
/// Invariants: `is_listed_ == (reachable from fork_list::newest)`; `is_listed_ || (!newer_ && !older_)`;
/// `!older_ || older_->newer_ == this`.
/// Thread-safe. O(1). Allocates nothing after the first object of a process.
class fork_participant {
 public:
  fork_participant(fork_participant const&) = delete;
  fork_participant& operator=(fork_participant const&) = delete;

 protected:
  fork_participant() noexcept = default;
  ~fork_participant() = default;
  void join() noexcept;
  /// Waits for a running fork. A second call does nothing.
  void deregister() noexcept;

 private:
  friend struct fork_list;
  /// Takes all of the object's locks, or none at the deadline.
  [[nodiscard]] virtual bool lock_for_fork(fork_clock::time_point deadline) noexcept = 0;
  virtual void unlock_after_fork(bool is_child) noexcept = 0;
  /// Cleans up in a child after threads that do not exist there, once all locks are free. The child has one
  /// thread, so no lock is needed; the forking thread may hold some.
  virtual void adapt_to_child() noexcept {}

  fork_participant* newer_ = nullptr;
  fork_participant* older_ = nullptr;
  unsigned long long stack_owner_ = 0;
  bool is_listed_ = false;
};

/// A mutex that is its own participant.
///
/// A fork leaves a lock alone that the forking thread holds, as when it forks inside a call of an upstream.
/// The thread continues in the child, owns the lock there, and unlocks it.
///
/// Invariant: `!(is_locked_for_fork_ && is_forking_threads_)`.
template <class Mutex = std::mutex>
class fork_safe final : fork_participant {
 public:
  fork_safe() noexcept { join(); }
  ~fork_safe() { deregister(); }

  /// Locks the mutex. If the calling thread already holds it and the C library can tell, reports a violation
  /// and throws std::system_error: an upstream has called the resource that calls it.
  void lock() {
    if (is_held_by_this_thread()) [[unlikely]]
      refuse_reentry();
    mutex_.lock();
  }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  /// True if the calling thread holds the mutex and must not lock it again.
  [[nodiscard]] bool is_held_by_this_thread() noexcept {
    if constexpr (has_owner) return detail::is_held_by_this_thread(*mutex_.native_handle());
    return false;
  }
  void unlock() { mutex_.unlock(); }

  /// Registers `object.adapt_to_child()`, to be called in a child. @pre the mutex is locked, or no other
  /// thread can fork yet.
  template <class Object>
  void adapt_with(Object& object) noexcept {
    object_ = &object;
    adapt_ = [](void* of) noexcept { static_cast<Object*>(of)->adapt_to_child(); };
  }
  /// Call it first in the destructor of an adapting object: later forks ignore the mutex.
  using fork_participant::deregister;

 private:
  static constexpr bool has_owner = requires(Mutex& mutex) { mutex.native_handle(); };

  bool lock_for_fork(fork_clock::time_point deadline) noexcept override {
    is_forking_threads_ = is_held_by_this_thread();
    return is_forking_threads_ || (is_locked_for_fork_ = lock_until(deadline, mutex_));
  }
  void unlock_after_fork(bool is_child) noexcept override {
    if constexpr (has_owner)
      if (is_child && is_forking_threads_) adopt_lock_in_child(*mutex_.native_handle());
    if (std::exchange(is_locked_for_fork_, false)) mutex_.unlock();
  }
  void adapt_to_child() noexcept override {
    if (adapt_ != nullptr) adapt_(object_);
  }

  Mutex mutex_;
  bool is_locked_for_fork_ = false;  // by a fork
  bool is_forking_threads_ = false;  // a fork has left the mutex to the forking thread
  void* object_ = nullptr;
  void (*adapt_)(void*) noexcept = nullptr;
};

/// The calling thread's number if the address is on its stack and that stack is reused after the thread ends.
/// Otherwise 0, also for the stack of another thread. Takes some microseconds at a thread's first call.
[[nodiscard]] unsigned long long stack_owner_of(void const* address) noexcept;
/// True in a child if the thread that `stack_owner_of` returned does not exist there. @pre called by the
/// thread that forked, before it starts others.
[[nodiscard]] bool is_lost(unsigned long long stack_owner) noexcept;

/// Policy for code that also takes locks.
struct std_sync : std_atomics {
  using mutex = fork_safe<>;
};

}  // namespace tidemark::detail
