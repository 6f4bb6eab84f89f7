// SPDX-License-Identifier: Apache-2.0
// Strategy: a cache, a pool and the pools of streams on a small fake device run a program of hits, misses,
// other streams, limits and returned memory. Each driver call fails once because of missing memory, and once
// for another reason, which the conformance suite does not test.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "fake_device.hpp"

namespace tidemark::test {
namespace {

/// `device_pools` as the memory of one stream.
class pools_of_one_stream {
 public:
  struct options {
    gpu::stream_handle stream = nullptr;
  };
  pools_of_one_stream(options const& chosen, gpu::driver& driver)
      : pools_{{.max_cached_bytes = 8 * MiB}, driver}, stream_{chosen.stream} {}

  void* allocate(std::size_t bytes, std::size_t align) { return pools_.allocate(bytes, align, stream_); }
  void deallocate(void* block, std::size_t bytes, std::size_t align) {
    deallocate_after(block, bytes, align, stream_);
  }
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, gpu::stream_handle by) {
    pools_.deallocate(block, bytes, align, by);
  }
  void trim() { (void)pools_.trim(); }
  void check_invariants() const { pools_.check_invariants(); }
  [[nodiscard]] device_pools_stats stats() const { return pools_.stats(); }

 private:
  device_pools pools_;
  gpu::stream_handle stream_;
};

void deallocate_behind(device_cache& to, void* block, std::size_t bytes, std::size_t align,
                       gpu::stream_handle by) {
  to.deallocate(block, bytes, align, by);
}
void deallocate_behind(auto& to, void* block, std::size_t bytes, std::size_t align, gpu::stream_handle by) {
  to.deallocate_after(block, bytes, align, by);
}
void return_some(device_cache& from, bool all) { (void)from.collect(all); }
void return_some(device_pool& from, bool all) { (void)from.trim(all ? 0 : 2 * MiB); }
void return_some(pools_of_one_stream& from, bool) { from.trim(); }

using size_choice = std::function<std::size_t(std::size_t random)>;

/// Simulates a program. @return true if every request was served
template <class Resource>
bool run_program(Resource& memory, fake_device& device, gpu::stream_handle other,
                 size_choice const& size_of) {
  struct held {
    void* block;
    std::size_t bytes, align;
  };
  std::vector<held> live;
  std::mt19937 random{11};
  bool all_served = true;
  const auto deallocate_one = [&](std::size_t i) {
    std::swap(live[i], live.back());
    const held gone = live.back();
    live.pop_back();
    if (random() % 4 == 0) deallocate_behind(memory, gone.block, gone.bytes, gone.align, other);
    else memory.deallocate(gone.block, gone.bytes, gone.align);
  };
  for (int i = 0; i < 40; ++i) {
    const std::size_t bytes = size_of(random()), align = random() % 8 == 0 ? 1024 : 256;
    try {
      live.push_back({memory.allocate(bytes, align), bytes, align});
    } catch (std::bad_alloc const&) {
      all_served = false;
    } catch (cuda_error const&) {
      all_served = false;
    }
    if (live.size() > 8) deallocate_one(random() % live.size());
    if (i % 16 == 0) device.run(other);
    if (i % 15 == 7) return_some(memory, i % 2 == 0);
  }
  while (!live.empty()) deallocate_one(0);
  memory.check_invariants();
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  return all_served;
}

template <class Resource, class Options>
void expect_each_failing_call_harmless(std::size_t capacity_bytes, Options options,
                                       size_choice const& size_of) {
  for (const gpu::status failure : {gpu::status::out_of_memory, gpu::status::unknown}) {
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE(::testing::Message() << "call " << n << " fails with " << static_cast<int>(failure));
      ASSERT_LT(n, 10'000u);
      fake_device device{{.capacity_bytes = capacity_bytes}};
      const gpu::stream stream{device}, other{device};
      options.stream = stream;
      device.failure = failure;
      const std::size_t failing = device.calls + n;
      device.fail_from = failing;
      bool came_there = true, failed = true;
      try {
        Resource memory{options, device};
        failed = !run_program(memory, device, other, size_of);
        came_there = device.calls > failing;
        device.fail_from = fake_device::never;
        EXPECT_TRUE(run_program(memory, device, other, size_of)) << "usable once the driver works again";
      } catch (std::bad_alloc const&) {
        EXPECT_EQ(failure, gpu::status::out_of_memory);
      } catch (cuda_error const&) {
        EXPECT_EQ(failure, gpu::status::unknown);
      }
      EXPECT_EQ(device.outstanding, 0u);
      if (!came_there) EXPECT_FALSE(failed);
      if (!came_there || ::testing::Test::HasFailure()) break;
    }
  }
}

TEST(device_failures, every_failed_call_of_a_cache_is_harmless) {
  expect_each_failing_call_harmless<device_cache>(
      4 * MiB, device_cache_options{.max_blocks_per_size = 2, .max_cached_bytes = 60'000},
      [](std::size_t random) { return 4000 * (1 + random % 5); });
}

TEST(device_failures, every_failed_call_of_a_pool_is_harmless) {
  expect_each_failing_call_harmless<device_pool>(
      1 * GiB, device_pool_options{.max_cached_bytes = 8 * MiB},
      [](std::size_t random) { return random % 10 == 0 ? 40 * MiB : 1000 * (random % 7); });
}

TEST(device_failures, every_failed_call_of_a_pool_of_graphs_is_harmless) {
  expect_each_failing_call_harmless<device_pool>(
      1 * GiB, device_pool_options{.keeps_addresses = true},
      [](std::size_t random) { return random % 3 == 0 ? (2 + random % 20) * MiB : 1000 * (random % 7); });
}

TEST(device_failures, every_failed_call_of_the_pools_of_streams_is_harmless) {
  expect_each_failing_call_harmless<pools_of_one_stream>(
      1 * GiB, pools_of_one_stream::options{},
      [](std::size_t random) { return random % 10 == 0 ? 40 * MiB : 1000 * (random % 7); });
}

}  // namespace
}  // namespace tidemark::test
