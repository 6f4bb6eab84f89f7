// SPDX-License-Identifier: Apache-2.0
// Threads that allocate and free at once, for counts that must still be exact.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <new>
#include <thread>
#include <vector>

namespace tidemark::test {

inline constexpr std::size_t storm_threads = 4;
inline constexpr std::size_t storm_rounds = 10'000;

/// Runs `body(thread)` on all threads at once, and returns when all have ended.
template <class Body>
void on_threads(Body body, std::size_t count = storm_threads) {
  std::atomic<std::size_t> waiting{count};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      waiting.fetch_sub(1);
      while (waiting.load() != 0) std::this_thread::yield();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Each thread allocates and frees 24 bytes `storm_rounds` times, always `held` of them alive. @return how
/// many requests were refused.
inline std::size_t storm(std::pmr::memory_resource& resource, std::size_t held = 8) {
  std::atomic<std::size_t> refused{0};
  on_threads([&](std::size_t) {
    std::vector<void*> blocks(held, nullptr);
    for (std::size_t i = 0; i < storm_rounds; ++i) {
      void*& block = blocks[i % held];
      if (block != nullptr) resource.deallocate(block, 24);
      try {
        block = resource.allocate(24);
      } catch (std::bad_alloc const&) {
        block = nullptr;
        refused.fetch_add(1);
      }
    }
    for (void* block : blocks) {
      if (block != nullptr) resource.deallocate(block, 24);
    }
  });
  return refused.load();
}

}  // namespace tidemark::test
