// SPDX-License-Identifier: Apache-2.0
/// @file
/// `brief_lock`: a lock that one thread nearly always finds free; `adaptive_mutex`: a mutex for which a
/// thread waits awake for a moment before it sleeps.
#pragma once

#include <atomic>
#include <mutex>

#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// A mutex for a thread's own data, which others lock seldom and briefly.
///
/// Taking and giving it up are one atomic exchange and one plain store, about 2 ns; a `std::mutex` takes two
/// exchanges, in functions of another library, and 6 ns. A thread that finds it taken retries a few times and
/// then sleeps between retries, so that the holder gets on even where it has the lower priority. Meets the
/// requirements of `std::scoped_lock`.
///
/// Any thread.
template <class Sync>
class basic_brief_lock {
 public:
  constexpr basic_brief_lock() noexcept = default;
  basic_brief_lock(basic_brief_lock const&) = delete;
  basic_brief_lock& operator=(basic_brief_lock const&) = delete;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  /// Whether somebody has it, a moment ago.
  [[nodiscard]] bool is_taken() const noexcept { return taken_.load(std::memory_order_relaxed); }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  TIDEMARK_COLD void wait() noexcept;

  Sync::template atomic<bool> taken_{false};
};
using brief_lock = basic_brief_lock<std_atomics>;
template <>
TIDEMARK_COLD void basic_brief_lock<std_atomics>::wait() noexcept;

/// A `std::mutex` that is held for less time than it takes to sleep and to be woken. As
/// `PTHREAD_MUTEX_ADAPTIVE_NP`, which a `std::mutex` cannot be made. Meets the requirements of
/// `std::scoped_lock`.
///
/// Any thread.
class adaptive_mutex {
 public:
  using native_handle_type = std::mutex::native_handle_type;

  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  [[nodiscard]] native_handle_type native_handle() { return mutex_.native_handle(); }

 private:
  TIDEMARK_COLD void wait();

  std::mutex mutex_;
};

}  // namespace tidemark::detail
