// SPDX-License-Identifier: Apache-2.0
// Strategy: random calls of a cache_share are compared with a model that states the rule. Then a pool follows
// the rule, while threads free their own blocks and blocks of other threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <random>
#include <thread>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/thread_cache.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

namespace tidemark {
namespace {

using detail::cache_share;

// The rule: 256 KiB plus the taken bytes that were not returned, at most the share. Heap blocks use the bytes
// that the lists do not use, of at least 1 MiB. They are updated with the watermark and with the taken bytes.
struct share_model {
  std::size_t taken = 0, report_above = cache_share::never, watermark = 0, heap = 1 * MiB;

  [[nodiscard]] std::size_t limit(std::size_t share) const {
    return std::min(share, 256 * KiB + std::min(taken, share));
  }
  [[nodiscard]] std::size_t chain(std::size_t share) const { return std::min(limit(share) / 4, 256 * KiB); }
  [[nodiscard]] std::size_t most(std::size_t share) const {
    return std::max(limit(share), std::min(share, 1 * MiB));
  }
  void update_heap(std::size_t share) { heap = most(share) - std::min(most(share), watermark); }
};

TEST(cache_share, agrees_with_its_model) {
  std::mt19937_64 random{7};
  std::atomic<std::size_t> share{4 * MiB};
  cache_share tested{share};
  share_model model;
  for (int step = 0; step < 200'000; ++step) {
    const std::size_t bytes = random() % (random() % 8 == 0 ? 8 * MiB : 64 * KiB);
    const std::size_t call = random() % 8;
    switch (call) {
      case 0:
        share = std::vector<std::size_t>{0, 100, 64 * KiB, 256 * KiB, 1 * MiB, 4 * MiB}[random() % 6];
        break;
      case 1:
        model.report_above = random() % 2 == 0 ? cache_share::never : bytes;
        tested.report_above(model.report_above);
        break;
      case 2:
        model.watermark = std::min(model.report_above, bytes + model.chain(share) / 2);
        EXPECT_EQ(tested.set_watermark(bytes), model.watermark);
        break;
      case 3:
      case 4:
        tested.on_pass_on(bytes);
        model.taken -= std::min(model.taken, bytes);
        break;
      case 5:
        if (bytes < 1 * MiB) continue;
        tested.on_pass_on(cache_share::never);
        model.taken = 0;
        break;
      default:
        tested.on_receive(bytes);
        model.taken += bytes;
    }
    if (call >= 2) model.update_heap(share);
    const std::size_t limit = model.limit(share);
    ASSERT_EQ(tested.limit(), limit);
    ASSERT_EQ(tested.chain_bytes(), model.chain(share));
    const std::size_t of_heap = random() % (2 * MiB);
    ASSERT_EQ(tested.is_full(bytes, of_heap),
              bytes + model.chain(share) / 2 > limit || bytes + of_heap > model.most(share));
    ASSERT_EQ(tested.heap_bytes(), model.heap);
    ASSERT_LE(limit, share);
  }
}

std::vector<void*> allocate_many(synchronized_pool& pool, std::size_t count, std::size_t bytes) {
  std::vector<void*> blocks(count);
  for (void*& each : blocks) each = pool.allocate(bytes);
  return blocks;
}

// Another thread may have all but what this one may cache.
void expect_hits_of_another_thread(synchronized_pool& pool, std::size_t bytes) {
  std::thread{[&] {
    const std::uint64_t misses = pool.stats().misses;
    for (void* each : allocate_many(pool, (3 * MiB - cache_share::start_bytes) / bytes, bytes))
      pool.deallocate(each, bytes);
    EXPECT_EQ(pool.stats().misses, misses) << "in blocks of " << bytes;
  }}.join();
}

TEST(cache_share, shares_blocks_of_other_threads_that_a_thread_frees) {
  for (const std::size_t bytes : {64u, 1000u, 16'384u}) {
    synchronized_pool pool;
    std::vector<void*> const blocks = allocate_many(pool, 3 * MiB / bytes, bytes);
    std::thread{[&] {
      for (void* each : blocks) pool.deallocate(each, bytes);
      expect_hits_of_another_thread(pool, bytes);
    }}.join();
    pool.check_invariants();
  }
}

TEST(cache_share, restarts_when_the_pool_is_released) {
  constexpr std::size_t bytes = 1000;
  synchronized_pool pool;
  (void)allocate_many(pool, 4 * MiB / bytes, bytes);  // the share of this thread is full
  pool.release();
  std::vector<void*> blocks;
  std::thread{[&] { blocks = allocate_many(pool, 3 * MiB / bytes, bytes); }}.join();
  for (void* each : blocks) pool.deallocate(each, bytes);
  expect_hits_of_another_thread(pool, bytes);
}

}  // namespace
}  // namespace tidemark
