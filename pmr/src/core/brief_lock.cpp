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

namespace {

// Says that a loop waits: the core gives its other thread precedence, and saves power.
void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// 50 pauses are 1 to 3 microseconds, about what it costs to sleep and be woken.
void adaptive_mutex::wait() {
  for (int i = 0; i < 50; ++i) {
    relax();
    if (mutex_.try_lock()) return;
  }
  mutex_.lock();
}

}  // namespace tidemark::detail
