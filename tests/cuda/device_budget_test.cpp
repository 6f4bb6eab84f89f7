// SPDX-License-Identifier: Apache-2.0
// Strategy: a full device or a reached limit, and the owners that then return memory: other caches, pools in
// their next call, callbacks. Each source of memory, and the bytes that count. On the fake device.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <latch>
#include <memory_resource>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"

namespace tidemark::test {
namespace {

using gpu::device_budget;
using gpu::status;

struct device_budget_test : ::testing::Test {
  /// The sentence of the exception that a request throws; empty if it throws none.
  static std::string refusal_of(std::function<void()> const& request) {
    return message_or<out_of_memory>("", request);
  }

  test::fake_device device{{.capacity_bytes = 64 * unit, .granularity_bytes = unit, .devices = 2}};
  gpu::stream stream{device}, other{device};
  gpu::device_resource plain{{}, device};
  device_budget& budget{device.budget(0)};
};

/// With a pool of the driver's, and the resource on it.
struct device_budget_of_a_pool : device_budget_test {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
};

TEST_F(device_budget_of_a_pool, counts_the_memory_of_every_resource_until_it_is_freed) {
  gpu::managed_resource managed{{}, device};
  gpu::pinned_resource pinned{{}, device};
  std::pmr::memory_resource* const all[] = {&plain, &managed};
  for (std::pmr::memory_resource* each : all) {
    for (const std::size_t align : {std::size_t{256}, std::size_t{4096}}) {
      void* const block = each->allocate(1000, align);
      EXPECT_EQ(budget.held_bytes(), 1000 + (align - 256));
      each->deallocate(block, 1000, align);
      EXPECT_EQ(budget.held_bytes(), 0u);
    }
  }
  void* const pooled = async.allocate(1000);
  EXPECT_EQ(budget.held_bytes(), 1024u) << "the driver's rounding counts as held";
  async.deallocate(pooled, 1000);
  EXPECT_EQ(budget.held_bytes(), 1024u) << "the driver's pool retains it";
  stream.synchronize();
  pool.trim();
  EXPECT_EQ(budget.held_bytes(), 0u);
  void* const of_the_host = pinned.allocate(1000);
  EXPECT_EQ(budget.held_bytes(), 0u) << "host memory does not count";
  pinned.deallocate(of_the_host, 1000);
  {
    const managed_arena shared{{.reserve = unit}, unit, device};
    const pinned_arena staging{{.reserve = unit}, unit, device};
    EXPECT_EQ(budget.held_bytes(), unit);
  }
  device.run_all();
  EXPECT_EQ(budget.held_bytes(), 0u);
  EXPECT_EQ(device.budget(1).held_bytes(), 0u);
}

TEST_F(device_budget_test, all_resources_share_the_limit_and_errors_name_it) {
  device_cache cache{{.stream = stream}, device};
  device_arena arena{{.reserve = 16 * unit}, gpu::virtual_memory_options{.stream = stream}, device};
  budget.set_limit(4 * unit);
  void* const block = plain.allocate(3 * unit);
  (void)arena.allocate(100);
  EXPECT_EQ(budget.held_bytes(), 4 * unit);
  const std::function<void()> requests[] = {
      [&] { (void)plain.allocate(1); },
      [&] { (void)cache.allocate(1); },
      [&] { (void)arena.allocate(unit); },
  };
  const std::size_t calls = device.count("cuMemAlloc");
  for (auto const& request : requests) {
    const std::string said = refusal_of(request);
    EXPECT_NE(said.find("the limit of its device is reached"), std::string::npos) << said;
  }
  EXPECT_EQ(device.count("cuMemAlloc"), calls) << "the driver is not called";
  budget.set_limit(3 * unit);
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(1); }), "");
  budget.set_limit(device_budget::unlimited);
  plain.deallocate(plain.allocate(unit), unit);
  plain.deallocate(block, 3 * unit);
}

TEST_F(device_budget_test, exhausted_resources_get_memory_from_other_caches) {
  device_cache keeps{{.stream = other, .max_cached_bytes = 0}, device};
  const std::function<void()> requests[] = {
      [&] {
        device_cache cache{{.stream = stream}, device};
        cache.deallocate(cache.allocate(40 * unit), 40 * unit);
      },
      [&] {
        device_pool pool{{.stream = stream}, device};
        pool.deallocate(pool.allocate(40 * unit), 40 * unit);
      },
      [&] {
        device_arena arena{{.reserve = 64 * unit}, gpu::virtual_memory_options{.stream = stream}, device};
        (void)arena.allocate(40 * unit);
      },
      [&] { plain.deallocate(plain.allocate(40 * unit), 40 * unit); },
      [&] { const managed_arena arena{{.reserve = 40 * unit}, unit, device}; },
  };
  for (auto const& request : requests) {
    keeps.deallocate(keeps.allocate(40 * unit), 40 * unit);
    EXPECT_EQ(keeps.stats().cached_bytes, 40 * unit);
    EXPECT_EQ(refusal_of(request), "");
    EXPECT_EQ(keeps.stats().cached_bytes, 0u);
    stream.synchronize();  // behind which the driver frees
  }
}

TEST_F(device_budget_test, cache_returns_pending_blocks_after_a_wait) {
  device_cache keeps{{.stream = other}, device};
  void* const block = keeps.allocate(40 * unit);
  other.synchronize();
  device.write(stream, block, 100);
  keeps.deallocate(block, 40 * unit, 256, stream);
  EXPECT_EQ(keeps.stats().pending_bytes, 40 * unit);
  plain.deallocate(plain.allocate(40 * unit), 40 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 0u);
}

TEST_F(device_budget_test, cache_on_a_capturing_stream_returns_nothing) {
  device_cache keeps{{.stream = other, .max_cached_bytes = 0}, device};
  keeps.deallocate(keeps.allocate(40 * unit), 40 * unit);
  {
    const test::empty_capture graph{device, other};
    EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "");
  }
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(40 * unit), 40 * unit); }), "");
}

TEST_F(device_budget_test, pool_returns_idle_memory_in_its_next_call) {
  device_pool keeps{{.stream = other}, device};
  void* const lives = keeps.allocate(2 * unit);
  keeps.deallocate(keeps.allocate(unit), unit);
  const std::size_t held = keeps.stats().held_bytes;
  EXPECT_EQ(held, 3 * unit);
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(62 * unit); }), "") << "the pool belongs to another thread";
  EXPECT_EQ(keeps.stats().held_bytes, held);
  keeps.deallocate(lives, 2 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 0u) << "all of it was free then";
  void* const next = keeps.allocate(2 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 2 * unit) << "the pool works as before";
  keeps.deallocate(next, 2 * unit);
  keeps.check_invariants();
}

TEST_F(device_budget_test, pool_serves_its_thread_while_other_threads_call_relieve) {
  device_pool pool{{.stream = stream}, device};
  std::jthread asking{[&](std::stop_token const& stop) {
    while (!stop.stop_requested()) (void)budget.relieve();
  }};
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) {
    blocks.push_back(pool.allocate(1000));
    if (blocks.size() < 20) continue;
    for (void* block : blocks) pool.deallocate(block, 1000);
    blocks.clear();
  }
  asking.request_stop();
  asking.join();
  pool.check_invariants();
}

TEST_F(device_budget_test, callback_runs_last_and_its_freed_memory_is_used) {
  device_cache tensors{{.stream = other}, device};
  void* held = tensors.allocate(40 * unit);
  int asked = 0;
  std::optional<device_budget::subscription> asks = budget.on_exhausted([&] {
    ++asked;
    EXPECT_NE(refusal_of([&] { (void)tensors.allocate(40 * unit); }), "")
        << "a request of a callback is refused at once";
    if (held == nullptr) return false;
    tensors.deallocate(std::exchange(held, nullptr), 40 * unit);
    return true;
  });
  void* const block = plain.allocate(40 * unit);
  EXPECT_EQ(asked, 1);
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "") << "the callback freed nothing";
  EXPECT_EQ(asked, 2);
  asks.reset();
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "");
  EXPECT_EQ(asked, 2);
  plain.deallocate(block, 40 * unit);
}

TEST_F(device_budget_test, callback_may_deallocate_into_the_exhausted_pool_and_destroy_caches) {
  device_pool pool{{.stream = stream, .upstream = &plain}, device};
  std::vector<void*> held;
  for (int i = 0; i < 8; ++i) held.push_back(pool.allocate(unit));
  std::optional<device_cache> idle{std::in_place, device_cache_options{.stream = other}, device};
  void* const filling = idle->allocate(20 * unit);
  idle->deallocate(filling, 20 * unit);
  void* const rest = plain.allocate(12 * unit);
  const auto asks = budget.on_exhausted([&] {
    for (void* block : held) pool.deallocate(block, unit);
    held.clear();
    idle.reset();
    plain.deallocate(rest, 12 * unit);
    return true;
  });
  void* const block = pool.allocate(30 * unit);
  pool.check_invariants();
  EXPECT_EQ(pool.stats().used_blocks, 1u);
  EXPECT_EQ(pool.stats().used_bytes, 30 * unit);
  pool.deallocate(block, 30 * unit);
}

TEST_F(device_budget_test, relieve_skips_a_cache_on_a_user_upstream) {
  device_pool pool{{.stream = stream}, device};
  device_cache on_pool{{.stream = stream, .max_cached_bytes = 0, .upstream = &pool}, device};
  on_pool.deallocate(on_pool.allocate(1000), 1000);
  (void)std::async(std::launch::async, [&] { return budget.relieve(); }).get();
  EXPECT_EQ(on_pool.stats().cached_bytes, 1000u) << "the pool belongs to another thread";
}

// As a training step that is short of memory: the driver's pool keeps what the resource has freed.
TEST_F(device_budget_of_a_pool, trims_memory_that_a_driver_pool_retains_before_exceeding_the_limit) {
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  EXPECT_EQ(budget.held_bytes(), 10 * unit);
  EXPECT_EQ(device.used_bytes(), 10 * unit);
  budget.set_limit(12 * unit);
  void* const block = plain.allocate(4 * unit);
  EXPECT_EQ(budget.held_bytes(), 4 * unit) << "the pool was trimmed";
  EXPECT_EQ(device.used_bytes(), 4 * unit);
  plain.deallocate(block, 4 * unit);
}

TEST_F(device_budget_of_a_pool, relieve_trims_driver_pools_after_the_work_of_their_streams) {
  device_pool blocks{{.stream = other}, device};
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  blocks.deallocate(blocks.allocate(20 * unit), 20 * unit);
  EXPECT_EQ(budget.held_bytes(), 30 * unit);
  EXPECT_TRUE(budget.relieve());
  EXPECT_EQ(budget.held_bytes(), 20 * unit) << "the pool gives back in its next call";
  blocks.deallocate(blocks.allocate(1), 1);
  (void)blocks.trim();
  EXPECT_EQ(budget.held_bytes(), 0u);
  EXPECT_EQ(device.used_bytes(), 0u);
}

TEST_F(device_budget_test, driver_pool_is_trimmed_after_its_resource_has_ended) {
  gpu::memory_pool pool{{}, device};
  {
    gpu::async_resource ending{{.pool = pool, .stream = stream}, device};
    ending.deallocate(ending.allocate(40 * unit), 40 * unit);
  }
  stream.synchronize();
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(40 * unit), 40 * unit); }), "");
  EXPECT_EQ(budget.held_bytes(), 0u);
}

TEST_F(device_budget_of_a_pool, refuses_a_request_if_retained_pool_memory_cannot_be_trimmed) {
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  budget.set_limit(12 * unit);
  {
    const test::empty_capture graph{device, stream};
    EXPECT_NE(refusal_of([&] { (void)plain.allocate(4 * unit); }), "") << "the pool cannot be trimmed";
    EXPECT_EQ(budget.held_bytes(), 10 * unit) << "nothing is counted";
  }
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(4 * unit), 4 * unit); }), "");
}

// A real pool grows by some MiB for a small block.
TEST_F(device_budget_test, growth_of_a_driver_pool_past_the_limit_is_undone_and_refused) {
  test::fake_device coarse{{.granularity_bytes = unit, .pool_granule_bytes = 32 * unit}};
  gpu::stream ordered{coarse};
  gpu::memory_pool grown{{}, coarse};
  gpu::async_resource ordered_blocks{{.pool = grown, .stream = ordered}, coarse};
  coarse.budget(0).set_limit(16 * unit);
  const std::string refusal = refusal_of([&] { (void)ordered_blocks.allocate(1000); });
  EXPECT_NE(refusal.find("limit"), std::string::npos) << refusal;
  EXPECT_EQ(coarse.budget(0).held_bytes(), 0u);
  EXPECT_EQ(coarse.used_bytes(), 0u);
  coarse.budget(0).set_limit(32 * unit);
  void* const block = ordered_blocks.allocate(1000);
  EXPECT_EQ(coarse.budget(0).held_bytes(), 32 * unit);
  ordered_blocks.deallocate(block, 1000);
  (void)coarse.budget(0).relieve();
  EXPECT_EQ(coarse.used_bytes(), 0u);
}

TEST_F(device_budget_test, blocks_of_a_pool_count_in_the_budget_of_the_pools_device) {
  gpu::memory_pool of_second{{.device = 1}, device};
  gpu::async_resource there{{.pool = of_second, .stream = stream}, device};
  device.budget(1).set_limit(8 * unit);
  void* const block = there.allocate(6 * unit);
  EXPECT_EQ(budget.held_bytes(), 0u);
  EXPECT_EQ(device.budget(1).held_bytes(), 6 * unit);
  EXPECT_NE(refusal_of([&] { (void)there.allocate(6 * unit); }), "");
  there.deallocate(block, 6 * unit);
  EXPECT_TRUE(device.budget(1).trim_pools());
  EXPECT_EQ(device.budget(1).held_bytes(), 0u);
}

TEST_F(device_budget_test, subscription_ends_after_its_running_callback) {
  std::latch runs{1};
  std::atomic<bool> has_returned = false;
  std::optional<device_budget::subscription> asks = budget.on_exhausted([&] {
    runs.count_down();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    has_returned = true;
    return false;
  });
  const std::jthread asking{[&] { (void)budget.relieve(); }};
  runs.wait();
  asks.reset();
  EXPECT_TRUE(has_returned);
}

TEST_F(device_budget_test, request_refused_by_the_driver_counts_no_bytes) {
  gpu::virtual_memory space{{.stream = stream}, device};
  const byte_range range = space.reserve(1, 8 * unit);
  std::size_t peak = 0;
  for (char const* call : {"cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    device.fail_next(call, status::unknown);
    (void)message_or<cuda_error>("", [&] {
      plain.deallocate(plain.allocate(1000), 1000);
      peak = std::max<std::size_t>(peak, 1000);
      EXPECT_FALSE(space.commit({range.begin, unit}));
    });
    EXPECT_EQ(budget.held_bytes(), 0u) << call;
    if (call == std::string{"cuMemMap"}) peak = unit;  // the driver has created the memory
    EXPECT_EQ(budget.peak_bytes(), peak) << call;
  }
  space.release(range);
}

}  // namespace
}  // namespace tidemark::test
