// SPDX-License-Identifier: Apache-2.0
// Strategy: callbacks of a device's budget, and handlers of its resources' reports, make, use and end
// resources of each kind, on their own thread and on a thread that they wait for. Like
// tests/core/user_code_test.cpp, on the fake device.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <latch>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "fake_device.hpp"

namespace tidemark {
namespace {

using gpu::device_budget;
using gpu::status;

std::function<void()> on_report;

struct device_user_code : ::testing::Test {
  static constexpr std::size_t grain = 64 * KiB;

  device_user_code() { ::alarm(60); }
  ~device_user_code() override {
    (void)set_violation_handler(nullptr);
    (void)set_warning_handler(nullptr);
    on_report = nullptr;
    ::alarm(0);
  }

  // On this thread and on one that it waits for.
  void on_both_threads(std::function<void()> const& action) {
    action();
    device.threads_meet();
    std::thread{action}.join();
    device.threads_meet();
  }
  // Uses small blocks, which are served beside the blocks that fill the device.
  void use_each_kind() {
    gpu::stream own{device};
    gpu::device_resource plain{{}, device};
    gpu::pinned_resource pinned{{}, device};
    device_cache cache{{.stream = own}, device};
    device_pools pools{{}, device};
    for (std::pmr::memory_resource* const each :
         std::initializer_list<std::pmr::memory_resource*>{&plain, &pinned, &cache, pools.on(own)})
      each->deallocate(each->allocate(256, 256), 256, 256);
    const device_budget::subscription asked = budget.on_exhausted([] { return false; });
    (void)budget.held_bytes();
  }
  // A device that has no memory for the largest request.
  void run_out() {
    gpu::device_resource plain{{}, device};
    EXPECT_THROW((void)plain.allocate(100 * grain), std::bad_alloc);
  }
  // Handles each report by `handle`, once.
  static void report_to(std::function<void()> const& handle) {
    on_report = [handle, is_called = std::make_shared<std::atomic<bool>>(false)] {
      if (!is_called->exchange(true)) handle();
    };
    (void)set_violation_handler([](violation const&) { on_report(); });
    (void)set_warning_handler([](warning const&) { on_report(); });
  }

  test::fake_device device{{.capacity_bytes = 64 * grain, .granularity_bytes = grain, .devices = 2}};
  gpu::stream stream{device};
  device_budget& budget{device.budget(0)};
};

TEST_F(device_user_code, callbacks_may_create_use_and_destroy_every_kind_of_resource) {
  int calls = 0;
  const auto asked = budget.on_exhausted([&] {
    ++calls;
    on_both_threads([&] { use_each_kind(); });
    return false;
  });
  run_out();
  EXPECT_EQ(calls, 1);
}

TEST_F(device_user_code, callbacks_may_destroy_resources_under_reclaim) {
  std::optional<device_cache> cache{std::in_place, device_cache_options{.stream = stream}, device};
  cache->deallocate(cache->allocate(grain), grain);
  std::optional<device_pool> pool{std::in_place, device_pool_options{.stream = stream}, device};
  pool->deallocate(pool->allocate(256), 256);
  const auto asked = budget.on_exhausted([&] {
    cache.reset();
    device.threads_meet();
    pool.reset();
    return true;
  });
  run_out();
  EXPECT_FALSE(cache.has_value());
  EXPECT_FALSE(pool.has_value());
}

TEST_F(device_user_code, callbacks_may_end_their_own_and_other_subscriptions) {
  int others = 0;
  std::optional<device_budget::subscription> own, other;
  own = budget.on_exhausted([&] {
    own.reset();
    other.reset();
    return false;
  });
  other = budget.on_exhausted([&] { return ++others, false; });
  run_out();
  EXPECT_EQ(others, 0) << "ended before its turn";
  run_out();
  EXPECT_FALSE(own.has_value());
}

TEST_F(device_user_code, callbacks_may_end_each_others_subscriptions_on_two_threads) {
  std::latch both_run{2};
  std::atomic<int> calls{0};
  std::optional<device_budget::subscription> first, second;
  const auto ending = [&](std::optional<device_budget::subscription>& other) {
    return [&] {
      ++calls;
      both_run.arrive_and_wait();
      other.reset();
      return false;
    };
  };
  first = budget.on_exhausted(ending(second));
  second = budget.on_exhausted(ending(first));
  std::thread other_thread{[&] { (void)budget.relieve(); }};
  (void)budget.relieve();
  other_thread.join();
  EXPECT_EQ(calls, 2);
  run_out();
  EXPECT_EQ(calls, 2);
}

TEST_F(device_user_code, nested_relief_in_a_callback_has_no_effect) {
  int calls = 0;
  const auto asked = budget.on_exhausted([&] {
    ++calls;
    EXPECT_FALSE(budget.relieve());
    EXPECT_FALSE(budget.trim_pools());
    run_out();
    return false;
  });
  run_out();
  EXPECT_EQ(calls, 1);
}

TEST_F(device_user_code, callbacks_may_wait_for_an_exhausted_thread) {
  std::atomic<int> calls{0};
  const auto asked = budget.on_exhausted([&] {
    ++calls;
    std::thread{[&] {
      (void)budget.relieve();
      run_out();
    }}.join();
    return false;
  });
  run_out();
  EXPECT_EQ(calls, 1) << "the thread leaves it out";
}

TEST_F(device_user_code, handlers_may_use_the_reporting_resource) {
  device_cache cache{{.stream = stream}, device};
  device_pools pools{{}, device};
  gpu::device_resource plain{{}, device};
  for (std::pmr::memory_resource* const reporting :
       std::initializer_list<std::pmr::memory_resource*>{&cache, pools.on(stream), &plain}) {
    if (reporting == &cache && check_level < 2) continue;  // level 2 finds it
    void* const block = reporting->allocate(256, 256);
    reporting->deallocate(block, 256, 256);
    std::atomic<int> handled{0};
    report_to([&] {
      ++handled;
      on_both_threads([&] { reporting->deallocate(reporting->allocate(512, 256), 512, 256); });
      use_each_kind();
    });
    reporting->deallocate(block, 256, 256);
    EXPECT_EQ(handled, 1);
  }
}

// ---- drivers ----------------------------------------------------------------------------------------------

// A device whose driver calls a function before it serves a call.
struct calling_device : test::fake_device {
  using fake_device::fake_device;
  std::function<void()> call = [] {};

  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return call(), fake_device::allocate(bytes, block);
  }
  status free(std::uintptr_t block) noexcept override { return call(), fake_device::free(block); }
  status pool_reserved_bytes(gpu::pool_handle pool, std::size_t& bytes) noexcept override {
    return call(), fake_device::pool_reserved_bytes(pool, bytes);
  }
};

struct drivers : ::testing::Test {
  drivers() { ::alarm(60); }
  ~drivers() override { ::alarm(0); }

  calling_device device{{.capacity_bytes = 4 * MiB, .granularity_bytes = 64 * KiB, .devices = 1}};
};

TEST_F(drivers, may_use_their_calling_resource_from_two_threads) {
  gpu::block_resource<gpu::block_kind::device> plain{{}, device};
  std::atomic<int> calls{0};
  device.call = [&] {
    if (++calls > 1) return;
    const auto use = [&] { plain.deallocate(plain.allocate(256), 256); };
    use();
    std::thread{use}.join();
    (void)device.budget(0).held_bytes();
  };
  plain.deallocate(plain.allocate(256), 256);
  EXPECT_EQ(calls, 6) << "three blocks";
}

TEST_F(drivers, abort_the_program_if_they_re_enter_the_calling_budget) {
  const gpu::memory_pool pool{{}, device};
  EXPECT_EQ(device.budget(0).held_bytes(), 0u);
  // `held_bytes` throws nothing, so that the program ends behind the report.
  EXPECT_DEATH(
      {
        device.call = [&] { (void)device.budget(0).held_bytes(); };
        (void)device.budget(0).held_bytes();
      },
      "is called by its own upstream, bookkeeping resource or callback");
}

}  // namespace
}  // namespace tidemark
