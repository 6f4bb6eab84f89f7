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

namespace {

// Tells the core that a loop waits: it favours its other thread and saves power.
void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// 50 pauses take 1 to 3 microseconds, about the cost of a sleep and wake-up.
void adaptive_mutex::wait() {
  for (int i = 0; i < 50; ++i) {
    relax();
    if (mutex_.try_lock()) return;
  }
  mutex_.lock();
}

}  // namespace tidemark::detail
