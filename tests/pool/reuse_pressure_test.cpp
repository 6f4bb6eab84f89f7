// SPDX-License-Identifier: Apache-2.0
// Strategy: a reuse cache without a user's limit, over a synthetic device of 1 TiB, and memory pressure with
// thread-safe and other upstreams.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <thread>

#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/global_pool.hpp>
#include <tidemark/pool/reuse_cache.hpp>

#include "calling_owner.hpp"
#include "recording_supply.hpp"
#include "reuse_subjects.hpp"

namespace tidemark::test {
namespace {

struct reuse_limits : test::reuse_test {};

TEST_F(reuse_limits, is_1_GiB_by_default) {
  reuse_cache cache{&upstream};
  EXPECT_EQ(cache.options().max_cached_bytes, 1 * GiB);
  EXPECT_EQ(reuse_cache{}.options().max_cached_bytes, 1 * GiB);
  for (std::size_t i = 0; i < 100; ++i)
    cache.deallocate(cache.allocate(100 * MiB + i * KiB), 100 * MiB + i * KiB);
  EXPECT_LE(cache.stats().cached_bytes, 1 * GiB);
  EXPECT_GT(cache.stats().cached_bytes, 900 * MiB);
  cache.check_invariants();
}

TEST_F(reuse_limits, default_limit_queries_no_fence_until_it_may_be_exceeded) {
  event small, large;
  reuse_cache cache{&upstream};
  void* const first = cache.allocate(1 * MiB);
  void* const second = cache.allocate(1 * GiB);
  cache.deallocate_after(first, 1 * MiB, 16, small.fence());
  cache.deallocate(cache.allocate(512), 512);
  EXPECT_EQ(small.asked, 0);
  cache.deallocate_after(second, 1 * GiB, 16, large.fence());
  cache.deallocate(cache.allocate(512), 512);
  EXPECT_GT(small.asked + large.asked, 0);
  small.complete();
  large.complete();
}

TEST(reuse_pressure, frees_ready_blocks_at_once_if_the_upstream_is_thread_safe) {
  for (std::pmr::memory_resource* const any :
       {std::pmr::new_delete_resource(), static_cast<std::pmr::memory_resource*>(&global_pool())}) {
    reuse_cache cache{any};
    event used;
    void* const pending = cache.allocate(2 * MiB);
    cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
    cache.deallocate_after(pending, 2 * MiB, 16, used.fence());
    std::thread{[] { (void)signal_memory_pressure(); }}.join();
    EXPECT_EQ(cache.stats().cached_bytes, 0u);
    EXPECT_EQ(cache.stats().pending_bytes, 2 * MiB) << "the fence is not done";
    used.complete();
    (void)signal_memory_pressure();
    EXPECT_EQ(cache.stats().held_bytes, 0u);
  }
}

TEST(reuse_pressure, is_handled_at_the_next_deallocation_if_the_upstream_is_single_threaded) {
  recording_resource upstream;
  reuse_cache cache{&upstream};
  void* const live = cache.allocate(512);
  cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
  std::thread{[] { (void)signal_memory_pressure(); }}.join();
  EXPECT_EQ(cache.stats().cached_bytes, 1 * MiB) << "never from a foreign thread";
  cache.deallocate(live, 512);
  EXPECT_EQ(cache.stats().held_bytes, 0u);
  cache.deallocate(cache.allocate(512), 512);
  EXPECT_EQ(cache.stats().cached_bytes, 512u) << "one signal is one collection";
}

TEST(reuse_pressure, is_handled_at_the_next_request_that_calls_the_upstream) {
  recording_resource upstream;
  reuse_cache cache{&upstream};
  cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
  (void)signal_memory_pressure();
  void* const block = cache.allocate(2 * MiB);
  EXPECT_EQ(cache.stats().held_bytes, 2 * MiB);
  cache.deallocate(block, 2 * MiB);
}

TEST(reuse_pressure, is_ignored_by_a_cache_with_an_owner) {
  test::calling_owner owner;
  reuse_cache cache{{.upstream = std::pmr::new_delete_resource()}, &owner};
  cache.deallocate(cache.allocate(1 * MiB), 1 * MiB);
  (void)signal_memory_pressure();
  EXPECT_EQ(cache.stats().cached_bytes, 1 * MiB);
}

}  // namespace
}  // namespace tidemark::test
