// SPDX-License-Identifier: Apache-2.0
/// @file
/// `brief_lock`: a lock that is nearly always free for its main user. `adaptive_mutex`: a mutex that spins
/// briefly before it sleeps.
#pragma once

#include <pthread.h>

#include <atomic>

#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// A mutex for a thread's own data, which other threads lock seldom and briefly.
///
/// Lock and unlock are one atomic exchange and one plain store, about 2 ns. A `std::mutex` needs two
/// exchanges in functions of another library, and 6 ns. A thread that finds the lock taken retries a few
/// times, then sleeps between retries, so that a holder of lower priority can proceed. Meets the requirements
/// of `std::scoped_lock`.
///
/// Thread-safe.
template <class Sync>
class basic_brief_lock {
 public:
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() noexcept { return !locked_.exchange(true, std::memory_order_acquire); }
  /// True if the lock was held at the time of the load.
  [[nodiscard]] bool is_locked() const noexcept { return locked_.load(std::memory_order_relaxed); }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  TIDEMARK_COLD void wait() noexcept;

  Sync::template atomic<bool> locked_{false};
};
using brief_lock = basic_brief_lock<std_atomics>;
template <>
TIDEMARK_COLD void basic_brief_lock<std_atomics>::wait() noexcept;

/// A mutex for critical sections shorter than a sleep and a wake-up: it spins before it sleeps, if the C
/// library can. Meets the requirements of `std::scoped_lock`.
///
/// Thread-safe.
class adaptive_mutex {
 public:
  using native_handle_type = pthread_mutex_t*;

  void lock() noexcept { (void)pthread_mutex_lock(&mutex_); }
  [[nodiscard]] bool try_lock() noexcept { return pthread_mutex_trylock(&mutex_) == 0; }
  void unlock() noexcept { (void)pthread_mutex_unlock(&mutex_); }
  [[nodiscard]] native_handle_type native_handle() noexcept { return &mutex_; }

 private:
#if defined(PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP)
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
#endif
};

}  // namespace tidemark::detail
