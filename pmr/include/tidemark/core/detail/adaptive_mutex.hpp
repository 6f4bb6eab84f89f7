// SPDX-License-Identifier: Apache-2.0
/// @file
/// `adaptive_mutex`: a mutex for which a thread waits awake for a moment before it sleeps.
#pragma once

#include <mutex>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

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
