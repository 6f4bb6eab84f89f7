// SPDX-License-Identifier: Apache-2.0
// Strategy: a cache over addresses that must not be touched, whose orders of reuse and of eviction show in
// the addresses that come back and those that the upstream still holds; and what makes room when the upstream
// runs out, counted in calls of the upstream.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/pool/reuse_cache.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "calling_owner.hpp"
#include "recording_supply.hpp"
#include "reuse_subjects.hpp"
#include "thread_storm.hpp"

namespace tidemark::test {
namespace {

struct reuse_cache_order : test::reuse_test {};

// ---- which block of a size is allocated ------------------------------------------------------------------

// S1.25
TEST_F(reuse_cache_order, reuses_blocks_of_one_size_in_fifo_order) {
  reuse_cache cache{{.upstream = &upstream}};
  const std::vector<void*> blocks = allocate_blocks(cache, 3, 512);
  deallocate_blocks(cache, blocks, 512);
  EXPECT_EQ(cache.allocate(512, 256), blocks[0]);
  EXPECT_EQ(cache.allocate(512, 256), blocks[1]);
  EXPECT_EQ(cache.allocate(512, 256), blocks[2]);
  deallocate_blocks(cache, blocks, 512);
}

TEST_F(reuse_cache_order, orders_a_fenced_block_by_its_completion) {
  event done, last;
  done.order = last.order = this;
  reuse_cache cache{&upstream};
  const std::vector<void*> blocks = allocate_blocks(cache, 3, 512);
  void* const other = cache.allocate(64, 256);
  cache.deallocate_after(blocks[0], 512, 256, done.fence());
  cache.deallocate_after(other, 64, 256, last.fence());
  cache.deallocate(blocks[1], 512, 256);
  done.complete();
  last.complete();
  EXPECT_EQ(cache.allocate(64, 256), other);  // queries both fences
  cache.deallocate(blocks[2], 512, 256);
  EXPECT_EQ(cache.stats().pending_bytes, 0u);
  EXPECT_EQ(cache.allocate(512, 256), blocks[1]);
  EXPECT_EQ(cache.allocate(512, 256), blocks[0]);
  EXPECT_EQ(cache.allocate(512, 256), blocks[2]);
  deallocate_blocks(cache, blocks, 512);
  cache.deallocate(other, 64, 256);
}

// S1.26
TEST_F(reuse_cache_order, evicts_the_oldest_of_65_blocks_of_one_size) {
  reuse_cache cache{{.max_blocks_per_size = 64, .upstream = &upstream}};
  const std::vector<void*> other = allocate_blocks(cache, 1, 4096);
  const std::vector<void*> blocks = allocate_blocks(cache, 65, 512);
  deallocate_blocks(cache, other, 4096);
  deallocate_blocks(cache, {blocks.begin(), blocks.end() - 1}, 512);
  EXPECT_EQ(held_of(blocks), 65u);
  cache.deallocate(blocks[64], 512, 256);
  EXPECT_EQ(held_of(blocks), 64u);
  EXPECT_FALSE(upstream.holds(blocks[0]));
  EXPECT_TRUE(upstream.holds(other[0]));
  EXPECT_EQ(cache.allocate(512, 256), blocks[1]);
  cache.deallocate(blocks[1], 512, 256);
}

// ---- which blocks leave -----------------------------------------------------------------------------------

TEST_F(reuse_cache_order, evicts_the_oldest_block_of_the_largest_size) {
  reuse_cache cache{{.max_cached_bytes = 1000, .upstream = &upstream}};
  const std::vector<void*> large = allocate_blocks(cache, 3, 300), small = allocate_blocks(cache, 1, 200);
  deallocate_blocks(cache, {large[1], large[0], large[2]}, 300);
  deallocate_blocks(cache, small, 200);
  EXPECT_FALSE(upstream.holds(large[1]));
  EXPECT_EQ(held_of(large), 2u);
  EXPECT_EQ(held_of(small), 1u);
}

TEST_F(reuse_cache_order, evicts_a_pending_block_by_size_when_its_fence_is_done) {
  event done;
  reuse_cache cache{{.max_cached_bytes = 1000, .upstream = &upstream}};
  void* const largest = cache.allocate(900, 256);
  const std::vector<void*> small = allocate_blocks(cache, 3, 100);
  cache.deallocate_after(largest, 900, 256, done.fence());
  deallocate_blocks(cache, {small[0], small[1]}, 100);
  EXPECT_TRUE(upstream.holds(largest));
  done.complete();
  deallocate_blocks(cache, {small[2]}, 100);
  EXPECT_FALSE(upstream.holds(largest));
  EXPECT_EQ(cache.stats().cached_bytes, 300u);
}

TEST_F(reuse_cache_order, agrees_with_a_sorted_list_on_many_sizes) {
  constexpr std::size_t limit = 20'000;
  reuse_cache cache{{.max_cached_bytes = limit, .upstream = &upstream}};
  std::multiset<std::size_t> ready;  // contents of a list that is sorted each time
  std::size_t ready_bytes = 0;
  std::mt19937 random{7};
  std::vector<std::pair<void*, std::size_t>> live;
  for (int i = 0; i < 20'000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % 3000;
      const std::uint64_t hits = cache.stats().hits;
      live.emplace_back(cache.allocate(bytes, 256), bytes);
      const auto found = ready.find(bytes);
      ASSERT_EQ(cache.stats().hits > hits, found != ready.end()) << bytes;
      if (found != ready.end()) {
        ready.erase(found);
        ready_bytes -= bytes;
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [block, bytes] = live.back();
      live.pop_back();
      cache.deallocate(block, bytes, 256);
      ready.insert(bytes);
      ready_bytes += bytes;
      while (ready_bytes > limit) {
        ready_bytes -= *ready.rbegin();
        ready.erase(std::prev(ready.end()));
      }
      ASSERT_EQ(cache.stats().cached_bytes, ready_bytes);
    }
    if (i % 512 == 0) cache.check_invariants();
  }
  for (auto const& [block, bytes] : live) cache.deallocate(block, bytes, 256);
  cache.check_invariants();
}

TEST_F(reuse_cache_order, forgets_sizes_without_blocks) {
  recording_resource bookkeeping;
  reuse_cache cache{{.max_cached_bytes = 1, .upstream = &upstream, .bookkeeping = &bookkeeping}};
  const auto pass_through = [&](std::size_t first) {
    for (std::size_t bytes = first; bytes < first + 10'000; ++bytes)
      cache.deallocate(cache.allocate(bytes, 256), bytes, 256);
  };
  pass_through(100);
  const std::size_t outstanding = bookkeeping.outstanding;
  for (std::size_t i = 1; i < 10; ++i) pass_through(100 + i * 10'000);
  EXPECT_LT(bookkeeping.outstanding, 2 * outstanding);
  cache.check_invariants();
}

TEST_F(reuse_cache_order, failed_record_leaves_the_sizes_valid) {
  for (std::size_t n = 0; n < 60; ++n) {
    recording_resource bookkeeping;
    reuse_cache cache{{.max_cached_bytes = 2000, .upstream = &upstream, .bookkeeping = &bookkeeping}};
    bookkeeping.fail_from = n;
    for (std::size_t i = 0; i < 20; ++i) {
      cache.deallocate(cache.allocate(100 + i * 20, 256), 100 + i * 20, 256);
      cache.check_invariants();
    }
    if (bookkeeping.calls <= n) return;
  }
  FAIL() << "the records of 20 sizes need fewer allocations than that";
}

// ---- what makes room --------------------------------------------------------------------------------------

struct relieved_by : test::calling_owner {
  reuse_cache* cache = nullptr;
  int calls = 0;
  bool of_use = true;

  relieved_by() {
    relief = [this] {
      ++calls;
      (void)cache->collect(true);
      return of_use;
    };
  }
};

TEST_F(reuse_cache_order, relief_of_its_owner_replaces_both_collections_before_one_retry) {
  limit_resource budget{&upstream, 1000};
  event done;
  relieved_by room;
  reuse_cache cache{{.upstream = &budget}, &room};
  room.cache = &cache;
  deallocate_blocks(cache, allocate_blocks(cache, 6, 100), 100);
  cache.deallocate_after(cache.allocate(400, 256), 400, 256, done.fence());
  const std::uint64_t refused = budget.stats().refused;
  void* const block = cache.allocate(600, 256);
  EXPECT_EQ(room.calls, 1);
  EXPECT_EQ(budget.stats().refused, refused + 1);
  EXPECT_EQ(done.waits, 1) << "all blocks were drained before the second call";
  EXPECT_EQ(cache.stats().held_bytes, 600u);
  cache.deallocate(block, 600, 256);
}

TEST_F(reuse_cache_order, rejects_the_request_if_relief_fails) {
  for (const bool of_use : {true, false}) {
    SCOPED_TRACE(of_use);
    limit_resource budget{&upstream, 1000};
    relieved_by room;
    room.of_use = of_use;
    reuse_cache cache{{.upstream = &budget}, &room};
    room.cache = &cache;
    EXPECT_THROW((void)cache.allocate(1001, 256), out_of_memory);
    EXPECT_EQ(room.calls, 1);
    EXPECT_EQ(budget.stats().refused, of_use ? 2u : 1u)
        << "the upstream is called again only if the relief returns true";
    EXPECT_EQ(cache.stats().refused, 1u);
    cache.check_invariants();
  }
}

}  // namespace
}  // namespace tidemark::test
