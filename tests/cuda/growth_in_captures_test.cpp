// SPDX-License-Identifier: Apache-2.0
// Strategy: caches, pools and arenas that need memory during a capture: the bytes they take, their release
// after the capture, a failed request that loses nothing, and the drivers that the probe trusts. On the fake
// device.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

std::string refusal_of(std::pmr::memory_resource& resource, std::size_t bytes) {
  return message_or<out_of_memory>("", [&] { (void)resource.allocate(bytes, 256); });
}

struct growth_in_captures : ::testing::Test {
  fake_device device{{.capacity_bytes = 128 * MiB, .granularity_bytes = unit}};
  gpu::stream stream{device};

  /// Each call fails as often as the resource tries it.
  void expect_refusals_in_capture(std::pmr::memory_resource& resource,
                                  std::vector<std::pair<char const*, std::size_t>> const& calls) {
    const empty_capture graph{device, stream};
    EXPECT_NE(refusal_of(resource, 200 * MiB), "") << "more than the device has";
    device.budget(0).set_limit(1 * MiB);
    EXPECT_NE(refusal_of(resource, 8 * MiB), "") << "more than the limit";
    device.budget(0).set_limit(gpu::device_budget::unlimited);
    for (auto const& [call, tries] : calls) {
      device.fail_in(call, device.count(call), status::out_of_memory, tries);
      EXPECT_NE(refusal_of(resource, 8 * MiB), "") << call;
      device.fail_in(call, device.count(call), status::out_of_memory, 0);
    }
  }
};

TEST_F(growth_in_captures, small_blocks_share_memory_that_is_unmapped_after_the_capture) {
  device_cache cache{{.stream = stream, .max_blocks_per_size = 500}, device};
  std::vector<void*> blocks;
  {
    const empty_capture graph{device, stream};
    for (int i = 0; i < 500; ++i) blocks.push_back(cache.allocate(1000));
    EXPECT_LE(device.physical_bytes(), 4 * MiB);
    EXPECT_EQ(device.budget(0).held_bytes(), device.physical_bytes());
  }
  for (void* block : blocks) cache.deallocate(block, 1000);
  EXPECT_EQ(cache.collect(true), 500u * 1000u);
  EXPECT_EQ(device.physical_bytes(), 0u);
  EXPECT_EQ(device.budget(0).held_bytes(), 0u);
}

TEST_F(growth_in_captures, evicted_memory_is_reused_during_the_capture) {
  device_cache cache{{.stream = stream, .max_cached_bytes = 1}, device};
  const empty_capture graph{device, stream};
  void* const first = cache.allocate(1 * MiB);
  const std::size_t held = device.physical_bytes();
  cache.deallocate(first, 1 * MiB);
  for (int i = 0; i < 100; ++i) cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
  EXPECT_EQ(device.physical_bytes(), held);
}

TEST_F(growth_in_captures, relieve_unmaps_memory_freed_during_the_capture) {
  device_cache cache{{.stream = stream, .max_cached_bytes = 1}, device};
  {
    const empty_capture graph{device, stream};
    cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
    (void)device.budget(0).relieve();
    EXPECT_GT(device.physical_bytes(), 0u);
  }
  (void)device.budget(0).relieve();
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(growth_in_captures, exhausted_cache_keeps_the_capture_valid) {
  const test::violation_recorder recorder;
  device_cache cache{{.stream = stream}, device};
  expect_refusals_in_capture(cache, {{"cuMemCreate", 8}, {"cuMemMap", 8}, {"cuMemSetAccess", 8}});
  (void)cache.collect(true);
  EXPECT_EQ(device.physical_bytes(), 0u);
  EXPECT_EQ(recorder.count(violation_kind::open_capture), 0u);
}

TEST_F(growth_in_captures, exhausted_pool_keeps_the_capture_valid) {
  device_pool pool{{.stream = stream}, device};
  expect_refusals_in_capture(pool, {{"cuMemCreate", 4}, {"cuMemMap", 2}, {"cuMemSetAccess", 2}});
  pool.check_invariants();
  (void)pool.trim();
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(growth_in_captures, driver_that_refuses_a_mapping_call_disables_growth_in_captures) {
  for (char const* const call : {"cuMemGetInfo", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                 "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}) {
    std::vector<fake_refusal> refusals = test::observed_refusals();
    refusals.push_back(
        {.call = call, .by_others = false, .in_relaxed_too = true, .source = "no driver is known to do so"});
    fake_device refusing{{.granularity_bytes = unit, .refusals = refusals}};
    gpu::stream captured{refusing};
    device_cache cache{{.stream = captured}, refusing};
    {
      const empty_capture graph{refusing, captured};
      EXPECT_NE(refusal_of(cache, 1 * MiB).find("cannot map memory while"), std::string::npos) << call;
    }
    EXPECT_EQ(refusing.physical_bytes(), 0u) << call;
  }
}

TEST_F(growth_in_captures, probe_is_repeated_after_it_found_a_full_device) {
  for (char const* const call : {"cuMemCreate", "cuStreamBeginCapture", "cuStreamEndCapture"}) {
    fake_device full{{.granularity_bytes = unit}};
    full.fail_next(call);
    EXPECT_FALSE(full.maps_during_captures(0)) << call;
    EXPECT_TRUE(full.maps_during_captures(0)) << call;
  }
}

}  // namespace
}  // namespace tidemark::test
