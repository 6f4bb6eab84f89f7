// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/brief_lock.hpp>

#include <chrono>
#include <thread>

namespace tidemark::detail {

template <>
void basic_brief_lock<std_atomics>::wait() noexcept {
  constexpr int looks_before_sleep = 64;
  constexpr std::chrono::microseconds sleep{50};
  for (int looks = 0;; ++looks) {
    // Reads until it is free, because each exchange takes the cache line away from the holder.
    if (!is_taken() && try_lock()) return;
    if (looks < looks_before_sleep) std::this_thread::yield();
    else std::this_thread::sleep_for(sleep);
  }
}

}  // namespace tidemark::detail
