// SPDX-License-Identifier: Apache-2.0
// Strategy: a full device or a reached limit, and the owners that then return memory: other caches, pools in
// their next call, callbacks. Each source of memory, and the bytes that count. On the fake device.
#include <gtest/gtest.h>

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
#include "fake_device.hpp"
#include "fake_units.hpp"

namespace tidemark {
namespace {

using gpu::device_budget;
using gpu::status;
using test::unit;

struct device_budget_test : ::testing::Test {
  /// The sentence of the exception that a request throws; empty if it throws none.
  static std::string refusal_of(std::function<void()> const& request) {
    try {
      request();
      return "";
    } catch (out_of_memory const& refusal) {
      return refusal.what();
    }
  }

  test::fake_device device{{.capacity_bytes = 64 * unit, .granularity_bytes = unit, .devices = 2}};
  gpu::stream stream{device}, other{device};
  device_budget& budget{device.budget(0)};
};

TEST_F(device_budget_test, what_every_resource_takes_counts_until_it_is_freed) {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
  gpu::device_resource plain{{}, device};
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
  EXPECT_EQ(budget.held_bytes(), 1024u) << "what the driver's pool rounds up is held";
  async.deallocate(pooled, 1000);
  EXPECT_EQ(budget.held_bytes(), 1024u) << "the driver's pool retains it";
  stream.synchronize();
  pool.trim();
  EXPECT_EQ(budget.held_bytes(), 0u);
  void* const of_the_host = pinned.allocate(1000);
  EXPECT_EQ(budget.held_bytes(), 0u) << "that is the host's";
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

TEST_F(device_budget_test, a_limit_is_kept_by_all_together_and_named) {
  gpu::device_resource plain{{}, device};
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
  EXPECT_EQ(device.count("cuMemAlloc"), calls) << "the driver is not asked";
  budget.set_limit(3 * unit);
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(1); }), "");
  budget.set_limit(device_budget::unlimited);
  plain.deallocate(plain.allocate(unit), unit);
  plain.deallocate(block, 3 * unit);
}

TEST_F(device_budget_test, who_runs_out_gets_what_other_caches_keep) {
  device_cache keeps{{.stream = other, .max_cached_bytes = 0}, device};
  const std::function<void()> requests[] = {
      [&] {
        device_cache cache{{.stream = stream}, device};  // keeps a quarter of the device
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
      [&] {
        gpu::device_resource plain{{}, device};
        plain.deallocate(plain.allocate(40 * unit), 40 * unit);
      },
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

TEST_F(device_budget_test, a_cache_gives_back_what_is_pending_after_a_wait) {
  device_cache keeps{{.stream = other}, device};
  void* const block = keeps.allocate(40 * unit);
  other.synchronize();
  EXPECT_EQ(
      device.launch_kernel(
          stream, {.name = "user", .reads = {}, .writes = {{reinterpret_cast<std::uintptr_t>(block), 100}}}),
      status::success);
  keeps.deallocate(block, 40 * unit, 256, stream);
  EXPECT_EQ(keeps.stats().pending_bytes, 40 * unit);
  gpu::device_resource plain{{}, device};
  plain.deallocate(plain.allocate(40 * unit), 40 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 0u);
}

TEST_F(device_budget_test, a_cache_whose_stream_is_capturing_is_left_out) {
  device_cache keeps{{.stream = other, .max_cached_bytes = 0}, device};
  keeps.deallocate(keeps.allocate(40 * unit), 40 * unit);
  gpu::device_resource plain{{}, device};
  {
    const test::empty_capture graph{device, other};
    EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "");
  }
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(40 * unit), 40 * unit); }), "");
}

TEST_F(device_budget_test, a_pool_gives_back_in_its_next_call) {
  device_pool keeps{{.stream = other}, device};
  void* const lives = keeps.allocate(2 * unit);
  keeps.deallocate(keeps.allocate(unit), unit);
  const std::size_t held = keeps.stats().held_bytes;
  EXPECT_EQ(held, 3 * unit);
  gpu::device_resource plain{{}, device};
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(62 * unit); }), "") << "it is another thread's";
  EXPECT_EQ(keeps.stats().held_bytes, held);
  keeps.deallocate(lives, 2 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 0u) << "all of it was free then";
  void* const next = keeps.allocate(2 * unit);
  EXPECT_EQ(keeps.stats().held_bytes, 2 * unit) << "and from then on it works as before";
  keeps.deallocate(next, 2 * unit);
  keeps.check_invariants();
}

TEST_F(device_budget_test, a_pool_is_asked_by_other_threads_while_it_is_used) {
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

TEST_F(device_budget_test, a_callback_is_asked_last_and_what_it_frees_is_used) {
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
  gpu::device_resource plain{{}, device};
  void* const block = plain.allocate(40 * unit);
  EXPECT_EQ(asked, 1);
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "") << "it has freed nothing";
  EXPECT_EQ(asked, 2);
  asks.reset();
  EXPECT_NE(refusal_of([&] { (void)plain.allocate(40 * unit); }), "");
  EXPECT_EQ(asked, 2);
  plain.deallocate(block, 40 * unit);
}

TEST_F(device_budget_test, a_callback_may_deallocate_into_the_pool_that_runs_out_and_end_caches) {
  gpu::device_resource plain{{}, device};
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

TEST_F(device_budget_test, a_cache_on_the_users_upstream_is_not_asked_by_others) {
  device_pool pool{{.stream = stream}, device};
  device_cache on_pool{{.stream = stream, .max_cached_bytes = 0, .upstream = &pool}, device};
  on_pool.deallocate(on_pool.allocate(1000), 1000);
  (void)std::async(std::launch::async, [&] { return budget.relieve(); }).get();
  EXPECT_EQ(on_pool.stats().cached_bytes, 1000u) << "the pool is another thread's";
}

// K.9
// Like a training step that is short of memory: the driver's pool keeps the memory that the resource freed.
TEST_F(device_budget_test,
       memory_that_a_pool_of_the_drivers_retains_counts_and_goes_before_the_limit_is_passed) {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
  gpu::device_resource plain{{}, device};
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  EXPECT_EQ(budget.held_bytes(), 10 * unit);
  EXPECT_EQ(device.used_bytes(), 10 * unit);
  budget.set_limit(12 * unit);
  void* const block = plain.allocate(4 * unit);
  EXPECT_EQ(budget.held_bytes(), 4 * unit) << "the pool was trimmed";
  EXPECT_EQ(device.used_bytes(), 4 * unit);
  plain.deallocate(block, 4 * unit);
}

// K.9
TEST_F(device_budget_test, relief_trims_pools_of_the_drivers_behind_their_streams) {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
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

// K.9
TEST_F(device_budget_test, a_pool_of_the_drivers_that_captures_is_trimmed_later) {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  {
    const test::empty_capture graph{device, stream};
    EXPECT_FALSE(budget.trim_pools());
    EXPECT_EQ(budget.held_bytes(), 10 * unit);
  }
  EXPECT_TRUE(budget.trim_pools());
  EXPECT_EQ(budget.held_bytes(), 0u);
}

// K.9
TEST_F(device_budget_test, a_pool_of_the_drivers_is_trimmed_after_its_resource_has_ended) {
  gpu::memory_pool pool{{}, device};
  {
    gpu::async_resource async{{.pool = pool, .stream = stream}, device};
    async.deallocate(async.allocate(40 * unit), 40 * unit);
  }
  stream.synchronize();
  gpu::device_resource plain{{}, device};
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(40 * unit), 40 * unit); }), "");
  EXPECT_EQ(budget.held_bytes(), 0u);
}

// K.9
TEST_F(device_budget_test, a_request_is_refused_if_memory_that_a_pool_retains_would_pass_the_limit) {
  gpu::memory_pool pool{{}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
  gpu::device_resource plain{{}, device};
  async.deallocate(async.allocate(10 * unit), 10 * unit);
  budget.set_limit(12 * unit);
  {
    const test::empty_capture graph{device, stream};
    EXPECT_NE(refusal_of([&] { (void)plain.allocate(4 * unit); }), "") << "the pool cannot be trimmed";
    EXPECT_EQ(budget.held_bytes(), 10 * unit) << "nothing is counted";
  }
  EXPECT_EQ(refusal_of([&] { plain.deallocate(plain.allocate(4 * unit), 4 * unit); }), "");
}

// K.9
// A real pool grows by some MiB for a small block.
TEST_F(device_budget_test, a_pool_that_grows_past_the_limit_gives_back_and_the_request_is_refused) {
  test::fake_device coarse{{.granularity_bytes = unit, .pool_granule_bytes = 32 * unit}};
  gpu::stream ordered{coarse};
  gpu::memory_pool pool{{}, coarse};
  gpu::async_resource async{{.pool = pool, .stream = ordered}, coarse};
  device_cache cache{{.stream = ordered}, coarse};
  for (std::pmr::memory_resource* const each :
       {static_cast<std::pmr::memory_resource*>(&async), static_cast<std::pmr::memory_resource*>(&cache)}) {
    coarse.budget(0).set_limit(16 * unit);
    const std::string refusal = refusal_of([&] { (void)each->allocate(1000, 256); });
    EXPECT_NE(refusal.find("limit"), std::string::npos) << refusal;
    EXPECT_EQ(coarse.budget(0).held_bytes(), 0u);
    EXPECT_EQ(coarse.used_bytes(), 0u);
    coarse.budget(0).set_limit(32 * unit);
    void* const block = each->allocate(1000, 256);
    EXPECT_EQ(coarse.budget(0).held_bytes(), 32 * unit);
    each->deallocate(block, 1000, 256);
    (void)coarse.budget(0).relieve();
    EXPECT_EQ(coarse.used_bytes(), 0u);
  }
}

TEST_F(device_budget_test, blocks_of_a_pool_count_where_the_pool_counts) {
  gpu::memory_pool pool{{.device = 1}, device};
  gpu::async_resource async{{.pool = pool, .stream = stream}, device};
  device.budget(1).set_limit(8 * unit);
  void* const block = async.allocate(6 * unit);
  EXPECT_EQ(budget.held_bytes(), 0u);
  EXPECT_EQ(device.budget(1).held_bytes(), 6 * unit);
  EXPECT_NE(refusal_of([&] { (void)async.allocate(6 * unit); }), "");
  async.deallocate(block, 6 * unit);
  EXPECT_TRUE(device.budget(1).trim_pools());
  EXPECT_EQ(device.budget(1).held_bytes(), 0u);
}

TEST_F(device_budget_test, a_subscription_ends_when_its_callback_does_not_run_any_more) {
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
  std::optional<device_budget::subscription> own;
  own = budget.on_exhausted([&] { return own.reset(), true; });
  EXPECT_TRUE(budget.relieve());
  EXPECT_FALSE(budget.relieve());
}

TEST_F(device_budget_test, a_request_that_the_driver_refuses_counts_nothing) {
  gpu::device_resource plain{{}, device};
  gpu::virtual_memory space{{.stream = stream}, device};
  const byte_range range = space.reserve(1, 8 * unit);
  for (char const* call : {"cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    device.fail_next(call, status::unknown);
    EXPECT_TRUE(refusal_of([&] {
                  try {
                    plain.deallocate(plain.allocate(1000), 1000);
                    EXPECT_FALSE(space.commit({range.begin, unit}));
                  } catch (cuda_error const&) {
                  }
                }).empty());
    EXPECT_EQ(budget.held_bytes(), 0u) << call;
  }
  space.release(range);
}

}  // namespace
}  // namespace tidemark
