// SPDX-License-Identifier: Apache-2.0
// For tests that count calls of the heap: memory that calls it never, and a heap that has no more.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <new>

#include <tidemark/core/detail/distinct_resource.hpp>

#include "counting_new.hpp"

namespace tidemark::test {

/// As long as it lives, this thread's operator new fails, but for the first `served` calls.
struct no_memory {
  explicit no_memory(std::size_t served = 0) { max_news = news + served; }
  no_memory(no_memory const&) = delete;
  no_memory& operator=(no_memory const&) = delete;
  ~no_memory() { max_news = std::numeric_limits<std::size_t>::max(); }
};

/// Calls `run` until it does not throw. In the first run all calls of operator new fail, in the next all but
/// the first, and so on. Calls `check` after each run, with true if the run failed. @return the number of
/// failed runs
template <class Run, class Check>
std::size_t fail_each_new(Run run, Check check) {
  for (std::size_t failures = 0; failures < 20; ++failures) {
    bool failed = false;
    try {
      const no_memory here{failures};
      run();
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    check(failed);
    if (!failed) return failures;
  }
  ADD_FAILURE() << "20 runs failed";
  return 20;
}

/// Blocks of one size from an array: the last that came back is the next. Never calls the heap.
template <std::size_t Bytes, std::size_t Count>
class few_blocks final : public detail::distinct_resource {
 public:
  few_blocks() {
    for (std::size_t i = 0; i < Count; ++i) free_[i] = blocks_[i].data();
  }

  std::size_t outstanding = 0;  ///< blocks

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    if (bytes > Bytes || outstanding == Count) throw std::bad_alloc{};
    return free_[outstanding++];
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override { free_[--outstanding] = block; }

  alignas(256) std::array<std::array<std::byte, Bytes>, Count> blocks_{};
  std::array<void*, Count> free_{};
};

}  // namespace tidemark::test
