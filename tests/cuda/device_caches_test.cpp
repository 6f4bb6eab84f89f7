// SPDX-License-Identifier: Apache-2.0
// Strategy: blocks that go from stream to stream: each comes back to the stream it was allocated for, behind
// the work of the one it was last used on, which the fake's clocks check; streams that come and go; many
// threads.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "caught.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"
#include "recording_supply.hpp"
#include "seeds.hpp"
#include "violation_recorder.hpp"

namespace tidemark {
namespace {

using gpu::status;
using test::unit;

struct device_caches_test : ::testing::Test {
  void use(gpu::stream_handle on, void* block, std::size_t bytes) {
    EXPECT_EQ(
        device.launch_kernel(
            on, {.name = "user", .reads = {}, .writes = {{reinterpret_cast<std::uintptr_t>(block), bytes}}}),
        status::success);
  }

  test::fake_device device{{.granularity_bytes = unit, .touchable = true}};
  gpu::stream one{device}, two{device};
  device_caches memory{{.name = "shared"}, device};
};

TEST_F(device_caches_test, a_block_is_ready_for_its_stream_and_for_no_other) {
  void* const block = memory.allocate(1000, 256, one);
  use(one, block, 1000);
  memory.deallocate(block, 1000, 256, one);
  void* const other = memory.allocate(1000, 256, two);
  EXPECT_NE(other, block);
  use(two, other, 1000);
  EXPECT_EQ(memory.allocate(1000, 256, one), block);
  memory.deallocate(block, 1000, 256, one);
  memory.deallocate(other, 1000, 256, two);
  EXPECT_EQ(memory.streams(), 2u);
}

TEST_F(device_caches_test, a_block_used_on_another_stream_comes_back_behind_that) {
  void* const block = memory.allocate(1000, 256, one);
  EXPECT_EQ(gpu::put_behind(device, two, one), status::success);
  use(two, block, 1000);
  memory.deallocate(block, 1000, 256, two);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u);
  void* const meanwhile = memory.allocate(1000, 256, one);
  EXPECT_NE(meanwhile, block);
  device.run_all();
  EXPECT_EQ(memory.allocate(1000, 256, one), block);
  use(one, block, 1000);
  memory.deallocate(block, 1000, 256, one);
  memory.deallocate(meanwhile, 1000, 256, one);
}

TEST_F(device_caches_test, a_block_whose_owner_cannot_be_recorded_goes_back) {
  std::size_t failures = 0;
  for (std::size_t n = 0;; ++n) {
    test::recording_resource bookkeeping;
    device_caches each{{.bookkeeping = &bookkeeping, .name = "each"}, device};
    each.deallocate(each.allocate(1000, 256, one), 1000, 256, one);  // the stream has its cache
    void* const live = each.allocate(3000, 256, one);
    bookkeeping.fail_from = bookkeeping.calls + n;
    const std::size_t calls = bookkeeping.calls;
    void* block = nullptr;
    try {
      block = each.allocate(1000, 256, one);
    } catch (std::bad_alloc const&) {
      ++failures;
      EXPECT_EQ(each.stats().used_blocks, 1u) << "call " << n << " fails";
    }
    const bool is_served = bookkeeping.calls - calls <= n;
    bookkeeping.fail_from = test::supply::never;
    if (block == nullptr) block = each.allocate(1000, 256, one);
    each.deallocate(block, 1000, 256, one);
    each.deallocate(live, 3000, 256, one);
    EXPECT_EQ(each.stats().used_blocks, 0u) << "call " << n << " fails";
    if (is_served) break;
  }
  EXPECT_GT(failures, 0u) << "the owner is recorded in memory of the bookkeeping";
}

TEST_F(device_caches_test, a_stream_is_a_resource_which_takes_blocks_of_all) {
  std::pmr::memory_resource* const of_one = memory.on(one);
  std::pmr::memory_resource* const of_two = memory.on(two);
  EXPECT_EQ(memory.on(one), of_one);
  void* const block = of_one->allocate(1000, 256);
  of_two->deallocate(block, 1000, 256);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u) << "behind what is on the second";
  EXPECT_EQ(memory.stats().used_blocks, 0u);
}

TEST_F(device_caches_test, the_legacy_stream_has_one_cache_and_threads_have_none) {
  void* const block = memory.allocate(1000, 256, nullptr);
  memory.deallocate(block, 1000, 256, gpu::legacy_stream);
  EXPECT_EQ(memory.stats().cached_bytes, 1000u);
  EXPECT_EQ(memory.allocate(1000, 256, gpu::legacy_stream), block);
  memory.deallocate(block, 1000, 256, nullptr);
  EXPECT_EQ(memory.streams(), 1u);
  EXPECT_THROW((void)memory.allocate(1, 256, gpu::per_thread_stream), std::invalid_argument);
  EXPECT_EQ(memory.streams(), 1u);
}

TEST_F(device_caches_test, a_stream_that_ends_is_forgotten_first) {
  std::optional<gpu::stream> gone{std::in_place, device};
  void* const block = memory.allocate(1000, 256, *gone);
  use(*gone, block, 1000);
  const std::logic_error refusal = test::caught<std::logic_error>([&] { memory.forget(*gone); });
  EXPECT_NE(std::string{refusal.what()}.find("1 blocks"), std::string::npos) << refusal.what();
  memory.deallocate(block, 1000, 256, *gone);
  memory.forget(*gone);
  memory.forget(*gone);
  EXPECT_EQ(memory.streams(), 0u);
  EXPECT_EQ(memory.stats().held_bytes, 0u);
  gone.reset();
}

TEST_F(device_caches_test, what_is_not_live_is_reported_and_null_is_nothing) {
  const test::violation_recorder violations;
  memory.deallocate(nullptr, 10, 256, one);
  int foreign = 0;
  memory.deallocate(&foreign, 4, 256, one);
  ASSERT_EQ(violations.count(violation_kind::bad_deallocate), 1u);
  EXPECT_NE(violations.reports()[0].message.find("device_caches 'shared'"), std::string::npos);
  EXPECT_EQ(memory.streams(), 0u);
}

TEST_F(device_caches_test, collect_and_captures_are_a_matter_of_all) {
  for (gpu::stream_handle each : {one.get(), two.get()}) {
    void* const block = memory.allocate(1000, 256, each);
    memory.deallocate(block, 1000, 256, each);
  }
  EXPECT_EQ(memory.collect(true), 2000u);
  void* const block = memory.allocate(1000, 256, one);
  one.synchronize();
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(two, gpu::capture_mode::thread_local_), status::success);
  use(two, block, 1000);
  memory.deallocate(block, 1000, 256, two);
  EXPECT_EQ(device.end_capture(two, graph), status::success);
  EXPECT_EQ(memory.collect(true), 0u) << "the graph has it";
  EXPECT_EQ(device.destroy_graph(graph), status::success);
  EXPECT_EQ(memory.release_captured(), 1000u);
}

TEST_F(device_caches_test, the_cache_of_an_idle_stream_gives_back_when_the_device_is_full) {
  const std::size_t most = 900 * MiB;
  device_caches large{{.max_cached_bytes = 0}, device};
  void* const block = large.allocate(most, 256, one);
  large.deallocate(block, most, 256, one);
  void* const next = large.allocate(most, 256, two);
  EXPECT_EQ(large.stats().held_bytes, most);
  large.deallocate(next, most, 256, two);
}

TEST_F(device_caches_test, a_request_without_memory_leaves_it_as_it_was) {
  EXPECT_THROW((void)memory.allocate(2 * GiB, 256, one), out_of_memory);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  device.fail_next("cuMemPoolCreate", status::unknown);
  EXPECT_THROW((void)memory.allocate(1, 256, two), cuda_error);
  EXPECT_EQ(memory.streams(), 1u);
}

TEST_F(device_caches_test, threads_of_several_streams_share_it) {
  std::array<gpu::stream, 4> streams{gpu::stream{device}, gpu::stream{device}, gpu::stream{device},
                                     gpu::stream{device}};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < streams.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<void*> blocks;
      for (std::size_t i = 0; i < 300; ++i) {
        blocks.push_back(memory.allocate(1000, 256, streams[t]));
        if (blocks.size() < 5) continue;
        for (void* each : blocks) memory.deallocate(each, 1000, 256, streams[(t + i) % streams.size()]);
        blocks.clear();
      }
      for (void* each : blocks) memory.deallocate(each, 1000, 256, streams[t]);
    });
  }
  threads.clear();
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.stats().allocations, 1200u);
  device.run_all();
  for (gpu::stream const& each : streams) memory.forget(each);
  EXPECT_EQ(memory.streams(), 0u);
}

// Blocks wander between streams at random; each stream is put behind the block's before it uses it.
TEST_F(device_caches_test, random_programs_have_no_race) {
  struct block {
    void* first;
    std::size_t bytes;
    gpu::stream_handle on;
  };
  std::array<gpu::stream_handle, 3> const streams{one.get(), two.get(), nullptr};
  test::run_for_seeds(
      [&](std::uint64_t seed, auto const& run) {
        std::mt19937_64 random{seed};
        std::vector<block> live;
        struct {
          std::function<void()> step;
          void check_contents() const {}
        } program;
        program.step = [&] {
          gpu::stream_handle const on = streams[random() % streams.size()];
          if (live.size() < 20 && random() % 2 == 0) {
            const std::size_t bytes = std::size_t{256} << random() % 6;
            live.push_back({memory.allocate(bytes, 256, on), bytes, on});
            use(on, live.back().first, bytes);
          } else if (!live.empty() && random() % 3 != 0) {
            block& any = live[random() % live.size()];
            EXPECT_EQ(gpu::put_behind(device, on, any.on), status::success);
            any.on = on;
            use(on, any.first, any.bytes);
          } else if (!live.empty()) {
            const std::size_t i = random() % live.size();
            memory.deallocate(live[i].first, live[i].bytes, 256, live[i].on);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
          }
          if (random() % 20 == 0) (void)memory.collect(random() % 2 == 0);
          if (random() % 10 == 0) device.run(on);
        };
        run(program);
        for (block const& each : live) memory.deallocate(each.first, each.bytes, 256, each.on);
      },
      2000);
}

}  // namespace
}  // namespace tidemark
