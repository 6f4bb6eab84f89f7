// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/brief_lock.hpp>

#include <chrono>
#include <thread>

namespace tidemark::detail {

template <>
void basic_brief_lock<std_atomics>::wait() noexcept {
  constexpr int polls_before_sleep = 64;
  constexpr std::chrono::microseconds sleep{50};
  for (int polls = 0;; ++polls) {
    // Reads until the lock is free, because each exchange takes the cache line from the holder.
    if (!is_locked() && try_lock()) return;
    if (polls < polls_before_sleep) std::this_thread::yield();
    else std::this_thread::sleep_for(sleep);
  }
}

}  // namespace tidemark::detail
