// SPDX-License-Identifier: Apache-2.0
// Strategy: a counting operator new replaces the global one, so that "allocates nothing" is counted and not
// assumed.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "no_heap.hpp"

namespace tidemark::test {
namespace {

/// `step` is done once, and then again and again without a call of operator new.
template <class Step>
void expect_no_news_once_warm(Step step) {
  step();
  const std::size_t before = news;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(news, before);
}

// S0.15
TEST(heap, a_batch_that_crosses_chunks_allocates_nothing_once_warm) {
  arena step{{.reserve = 64 * KiB}};
  expect_no_news_once_warm([&] {
    const arena::scope scope{step};
    for (int i = 0; i < 20; ++i) (void)step.allocate(20 * KiB);
  });
}

TEST(heap, scratch_allocates_nothing_once_warm) {
  arena out;
  expect_no_news_once_warm([&] { (void)scratch(out).push_array<int>(100); });
}

TEST(heap, marking_may_allocate_and_rewinding_never_does) {
  // Each level adds a record of a rewind that ended a mark, so the records exceed their initial capacity.
  arena step;
  for (int level = 0; level < 1000; ++level) {
    (void)step.allocate(16);
    const arena_mark live = step.mark();
    (void)step.allocate(16);
    (void)step.mark();
    (void)step.allocate(16);
    const std::size_t before = news;
    step.rewind(live);
    ASSERT_EQ(news, before) << "at level " << level;
    (void)step.allocate(64);
  }
  EXPECT_GT(news, 0u);
}

TEST(heap, trace_resource_returns_a_block_it_cannot_record) {
  trace_log log{{.csv = "/dev/null"}};
  arena step;
  trace_resource traced{&step, log};
  (void)traced.allocate(16);
  const std::size_t before = step.position();
  {
    const no_memory here;
    EXPECT_THROW((void)traced.allocate(64), std::bad_alloc);
  }
  EXPECT_EQ(step.position(), before);
  EXPECT_EQ(traced.stats().refused, 1u);
  EXPECT_EQ(traced.stats().allocations, 1u);
  traced.check_invariants();
}

template <class Resource>
void expect_blocks_without_record_to_go_back(Resource& resource, arena const& upstream,
                                             std::size_t news_per_record) {
  void* const kept = resource.allocate(16);
  const std::size_t before = upstream.position();
  for (std::size_t served = 0; served < news_per_record; ++served) {
    const no_memory here{served};
    EXPECT_THROW((void)resource.allocate(64), std::bad_alloc)
        << "after " << served << " calls of operator new";
    EXPECT_EQ(upstream.position(), before) << "the block did not go back";
  }
  EXPECT_EQ(resource.stats().refused, news_per_record);
  EXPECT_EQ(resource.stats().allocations, 1u);
  EXPECT_EQ(resource.stats().peak_blocks, 1u);
  EXPECT_EQ(resource.leaks().size(), 1u);
  resource.deallocate(kept, 16);
  resource.deallocate(resource.allocate(64), 64);
}

TEST(heap, tracking_resource_returns_a_block_it_cannot_record) {
  arena step;
  tracking_resource tracked{&step};
  expect_blocks_without_record_to_go_back(tracked, step, 1);
}

TEST(heap, test_resource_returns_a_block_it_cannot_record) {
  arena step;
  test_resource tested{&step};
  expect_blocks_without_record_to_go_back(tested, step, 2);  // one for the ledger, one for the quarantine
  EXPECT_EQ(tested.check_guards(), 0u);
}

TEST(heap, deallocating_a_traced_block_never_allocates_in_a_known_thread) {
  trace_log log{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  trace_resource traced{log};
  void* const block = traced.allocate(16);
  const std::size_t before = news;
  traced.deallocate(block, 16);
  EXPECT_EQ(news, before);
}

TEST(heap, trace_log_reports_a_thread_it_has_no_memory_to_number) {
  trace_log log{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  trace_resource traced{log};
  void* const block = traced.allocate(16);
  std::thread{[&] {
    const no_memory here;
    traced.deallocate(block, 16);
  }}.join();
  EXPECT_EQ(traced.stats().deallocations, 1u);
  traced.check_invariants();
  EXPECT_EQ(log.error(), std::errc::not_enough_memory);
  EXPECT_THROW(log.close(), std::system_error);
}

template <class Pool>
void expect_hits_to_allocate_nothing() {
  Pool memory;
  expect_no_news_once_warm([&] {
    for (const std::size_t bytes : {40u, 1000u, 5000u}) {
      std::array<void*, 100> blocks;
      for (void*& block : blocks) block = memory.allocate(bytes);
      for (void* block : blocks) memory.deallocate(block, bytes);
    }
  });
}

// S2.6
TEST(heap, pools_allocate_nothing_for_a_hit) {
  if (detail::records_blocks)
    GTEST_SKIP() << "level 2 and ASan builds keep a ledger of blocks, which allocates";
  expect_hits_to_allocate_nothing<pool>();
  expect_hits_to_allocate_nothing<synchronized_pool>();
}

TEST(heap, thread_frees_blocks_without_memory_for_its_cache) {
  synchronized_pool memory{{.max_cached_bytes = 64 * KiB}};
  std::array<void*, 100> blocks;
  for (void*& block : blocks) block = memory.allocate(1000);
  void* const large = memory.allocate(50'000);
  const pool_stats before = memory.stats();
  std::thread{[&] {
    const no_memory here;
    memory.deallocate(blocks[0], 1000);
    EXPECT_EQ(memory.stats().cached_bytes, before.cached_bytes + 1024);
    for (std::size_t i = 2; i < blocks.size(); ++i) memory.deallocate(blocks[i], 1000);
    memory.deallocate(large, 50'000);
    EXPECT_EQ(memory.thread_count(), 1u);
  }}.join();
  const pool_stats after = memory.stats();
  EXPECT_EQ(after.deallocations, 100u);
  EXPECT_EQ(after.used_bytes, 1024u) << "blocks[1]";
  EXPECT_EQ(after.requested_bytes, 1000u);
  EXPECT_LE(after.cached_bytes, 36 * KiB) << "32 KiB, and this thread's page";
  EXPECT_GE(after.peak_cached_bytes, 28 * KiB) << "the returned memory was cached too";
  memory.check_invariants();
  memory.deallocate(blocks[1], 1000);
}

template <class Pool>
void expect_no_block_lost_to_the_ledger() {
  Pool memory;
  memory.deallocate(memory.allocate(64), 64);  // whatever a thread needs for its first block
  void* const live = memory.allocate(64);
  const pool_stats before = memory.stats();
  {
    const no_memory here;
    EXPECT_THROW((void)memory.allocate(64), std::bad_alloc);
  }
  EXPECT_EQ(memory.stats().used_blocks, 1u);
  EXPECT_EQ(memory.stats().used_bytes, 64u);
  EXPECT_EQ(memory.stats().cached_bytes, before.cached_bytes);
  memory.deallocate(live, 64);
  memory.check_invariants();
}

TEST(heap, pool_returns_a_block_its_ledger_cannot_record) {
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " keeps no ledger of blocks";
  expect_no_block_lost_to_the_ledger<pool>();
  expect_no_block_lost_to_the_ledger<synchronized_pool>();
}

TEST(heap, histogram_is_unchanged_by_a_size_it_cannot_record) {
  size_histogram sizes;
  sizes.record(64);
  {
    const no_memory here;
    EXPECT_THROW(sizes.record(100), std::bad_alloc);
    sizes.record(64);  // of a known size
  }
  EXPECT_EQ(sizes.requests(), 2u);
  EXPECT_EQ(sizes.suggest_size_classes(), (std::vector<std::size_t>{64}));
}

TEST(heap, returns_a_block_even_if_there_is_no_memory_to_record_its_size) {
  size_histogram sizes;
  arena step;
  statistics_resource counted{&step};
  counted.record_sizes(&sizes);
  void* block = nullptr;
  {
    const no_memory here;
    block = counted.allocate(100);
  }
  EXPECT_EQ(sizes.requests(), 0u);
  EXPECT_EQ(counted.stats().used_blocks, 1u);
  EXPECT_EQ(counted.stats().used_bytes, 100u);
  counted.deallocate(block, 100);
}

TEST(heap, a_reuse_cache_allocates_nothing_for_its_records_once_warm) {
  if (detail::records_blocks)
    GTEST_SKIP() << "level 2 and ASan builds keep a ledger of blocks, which allocates";
  static constexpr reuse_fence::functions done_functions{
      .done = [](void*) noexcept { return true; }, .wait = [](void*) noexcept {}, .destroy = nullptr};
  arena ground;
  reuse_cache tensors{{.max_cached_bytes = 100 * KiB, .upstream = &ground}};
  expect_no_news_once_warm([&] {
    std::array<void*, 300> blocks;  // 600 KiB, so that blocks come new, and go, all the time
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = tensors.allocate(2000 + i % 100, 64);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      tensors.deallocate_after(blocks[i], 2000 + i % 100, 64, reuse_fence{done_functions, nullptr});
    (void)tensors.collect();
  });
  EXPECT_GT(news, 0u);
}

// ---- epochs -----------------------------------------------------------------------------------------------

using static_resource = test::few_blocks<64, 1000>;

// S3.11
TEST(heap, epoch_resource_without_an_open_epoch_allocates_nothing) {
  static_resource upstream;
  epoch_resource memory{&upstream};
  for (int epochs = 0; epochs < 2; ++epochs) {
    const std::size_t before = news;
    for (int i = 0; i < 100; ++i) {
      const buffer<float> b{memory, 16}, c{memory, 16};
      memory.deallocate(memory.allocate(64, 64), 64, 64);
    }
    EXPECT_EQ(news, before);
    epoch e{memory};
    const buffer<float> b{memory, 16};
  }
}

// S3.37
TEST(heap, epochs_that_repeat_allocate_nothing_once_warm) {
  static_resource upstream;
  epoch_resource memory{&upstream};
  expect_no_news_once_warm([&] {
    std::array<buffer<float>, 200> handles;
    epoch outer{memory, "outer"};
    for (buffer<float>& b : handles) b = {memory, 16};
    epoch inner{memory, "inner"};
    for (buffer<float>& b : handles) b = {memory, 16};
    inner.keep(handles.front());
  });
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST(heap, owners_that_repeat_allocate_nothing_once_warm) {
  static_resource upstream;
  epoch_resource memory{&upstream};
  expect_no_news_once_warm([&] {
    std::array<buffer<float>, 200> handles;
    buffer_group tape{memory, "tape"};
    for (buffer<float>& b : handles) {
      b = {memory, 16};
      tape.add(b);
    }
  });
}

// S3.37
TEST(heap, the_end_of_an_epoch_never_allocates) {
  static_resource upstream;
  epoch_resource memory{&upstream};
  std::array<buffer<float>, 200> handles;
  epoch e{memory};
  for (buffer<float>& b : handles) b = {memory, 16};
  {
    const no_memory here;
    const std::size_t before = news;
    e.keep(handles[7]);
    EXPECT_EQ(e.end().reclaimed, 199u);
    EXPECT_EQ(news, before);
  }
  memory.check_invariants();
}

TEST(heap, epoch_is_not_open_without_memory_to_open_it) {
  static_resource upstream;
  epoch_resource memory{&upstream};
  const std::size_t failures = test::fail_each_new([&] { const epoch e{memory}; },
                                                   [&](bool) {
                                                     EXPECT_EQ(memory.depth(), 0u);
                                                     memory.check_invariants();
                                                   });
  EXPECT_GE(failures, 2u);
}

}  // namespace
}  // namespace tidemark::test
