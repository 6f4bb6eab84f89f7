// SPDX-License-Identifier: Apache-2.0
// Trims of idle memory that belongs to another thread.
#pragma once

#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::detail {

// Held while a thread trims idle memory of another thread. A fork waits for the mutex, and so does the other
// thread if it needs its memory.
[[nodiscard]] fork_safe<>& idle_memory_mutex() noexcept;

// Calls `trim()` under the mutex, unless another thread holds the mutex.
template <class Trim>
void trim_idle_memory(Trim trim) noexcept {
  fork_safe<>& mutex = idle_memory_mutex();
  if (!mutex.try_lock()) return;
  trim();
  mutex.unlock();
}

// Repeats `claim()` until it returns true. It returns false while another thread trims the memory.
template <class Claim>
void wait_for_idle_memory(Claim claim) {
  do {
    const std::scoped_lock until_trimmed{idle_memory_mutex()};
  } while (!claim());
}

}  // namespace tidemark::detail
