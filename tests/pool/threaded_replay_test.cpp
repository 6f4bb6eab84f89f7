// SPDX-License-Identifier: Apache-2.0
// Strategy: handwritten traces whose threads wait for each other, on resources that fail at a given
// allocation.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <new>

#include "recorded_trace.hpp"

namespace {

using tidemark::tools::recorded_trace;
using tidemark::tools::threaded_replay;

/// Serves requests of other sizes than `refused_bytes`, and counts live blocks. It owns the memory, because
/// blocks are never deallocated after a failure.
class refusing_resource final : public std::pmr::memory_resource {
 public:
  explicit refusing_resource(std::size_t refused_bytes) : refused_bytes_{refused_bytes} {}
  [[nodiscard]] int live() const { return live_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (bytes == refused_bytes_) throw std::bad_alloc{};
    ++live_;
    return memory_.data() + used_bytes_.fetch_add((bytes + align - 1) / align * align);
  }
  void do_deallocate(void*, std::size_t, std::size_t) override { --live_; }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }

  std::size_t refused_bytes_;
  std::atomic<int> live_{0};
  std::atomic<std::size_t> used_bytes_{0};
  alignas(std::max_align_t) std::array<std::byte, 4096> memory_;
};

/// Thread 0 allocates 100 and frees 200; thread 1 allocates 200 and frees 100.
recorded_trace crossed() {
  return {.events = {{true, 0, 0, 100}, {true, 1, 1, 200}, {false, 0, 1, 200}, {false, 1, 0, 100}},
          .blocks = 2,
          .threads = 2,
          .peak_live_bytes = 300,
          .left = {},
          .ids = {0, 1}};
}

TEST(threaded_replay, frees_blocks_of_the_other_thread) {
  refusing_resource resource{0};
  threaded_replay replay{crossed()};
  replay.run(resource);
  replay.run(resource);
  EXPECT_EQ(resource.live(), 0);
}

TEST(threaded_replay, rethrows_an_exception_of_the_callers_thread) {
  refusing_resource resource{100};
  threaded_replay replay{crossed()};
  EXPECT_THROW(replay.run(resource), std::bad_alloc);
}

TEST(threaded_replay, rethrows_an_exception_of_another_thread) {
  refusing_resource resource{200};
  threaded_replay replay{crossed()};
  EXPECT_THROW(replay.run(resource), std::bad_alloc);
}

}  // namespace
