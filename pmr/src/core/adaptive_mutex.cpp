// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/adaptive_mutex.hpp>

namespace tidemark::detail {
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
