// SPDX-License-Identifier: Apache-2.0
// Strategy: small blocks of epochs, which lie in slabs: their origin, the effect of an epoch's end, and
// deallocations early, late, wrong and on other threads. epoch_test.cpp has the facts that also hold for
// blocks with records; epoch_slabs_model_test.cpp has random sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/epoch.hpp>
#include <tidemark/pool/pool.hpp>

#include "contains.hpp"
#include "recording_supply.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

class epoch_slabs : public ::testing::Test {
 protected:
  std::vector<void*> allocate_blocks(std::size_t count, std::size_t bytes, std::size_t align = 8) {
    std::vector<void*> taken(count);
    for (void*& block : taken) {
      block = memory.allocate(bytes, align);
      std::memset(block, 0x5A, bytes);
    }
    return taken;
  }
  void deallocate_blocks(std::vector<void*> const& blocks, std::size_t bytes, std::size_t align = 8) {
    for (void* block : blocks) memory.deallocate(block, bytes, align);
  }

  recording_resource upstream;
  epoch_resource memory{&upstream};
};

TEST_F(epoch_slabs, hold_every_raw_block_of_at_most_1_kib) {
  epoch e{memory};
  (void)allocate_blocks(1000, 64);
  (void)allocate_blocks(10, 1024);
  EXPECT_LE(upstream.calls, 3u) << "chunks";
  EXPECT_LT(upstream.outstanding, 1000 * 64 + 128 * KiB);
  const std::size_t calls = upstream.calls;
  (void)allocate_blocks(10, 1025);
  EXPECT_EQ(upstream.calls, calls + 10) << "each a block of the upstream";
  const buffer<std::byte> b{memory, 64};
  EXPECT_EQ(upstream.calls, calls + 11) << "and blocks of buffers";
  memory.check_invariants();
  const epoch_summary end = e.end();
  EXPECT_EQ(end.reclaimed, 1000 + 10 + 10 + 1u);
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.stats().used_bytes, 0u);
  memory.check_invariants();
}

TEST_F(epoch_slabs, that_were_full_serve_their_class_after_a_deallocation) {
  const epoch e{memory};
  const std::vector<void*> full = allocate_blocks(2 * 16, 1024);
  memory.deallocate(full[3], 1024, 8);
  EXPECT_EQ(memory.allocate(1024, 8), full[3]) << "although another slab is free";
}

TEST_F(epoch_slabs, are_unused_on_memory_that_the_host_must_not_touch) {
  epoch_resource without{{.host_memory = false}, &upstream};
  const epoch e{without};
  const std::size_t calls = upstream.calls;
  for (int i = 0; i < 100; ++i) (void)without.allocate(64);
  EXPECT_EQ(upstream.calls, calls + 100);
}

TEST_F(epoch_slabs, find_each_block_by_its_address_and_no_block_between) {
  constexpr std::uintptr_t begin = std::uintptr_t{1} << 40;  // never touched
  const auto slab = std::make_unique<detail::epoch_slab>(begin);
  for (std::size_t bytes = slab->min_block_bytes; bytes <= slab->max_block_bytes; bytes += 8) {
    slab->begin(0, bytes);
    for (std::size_t offset = 0; offset < slab->range_bytes; ++offset) {
      const bool begins_there = offset % bytes == 0 && offset / bytes < slab->range_bytes / bytes;
      ASSERT_EQ(slab->block_at(reinterpret_cast<void*>(begin + offset)),
                begins_there ? offset / bytes : slab->none)
          << offset << " in blocks of " << bytes;
    }
  }
}

// S3.7
TEST_F(epoch_slabs, reuse_memory_deallocated_early) {
  const epoch e{memory};
  deallocate_blocks(allocate_blocks(1, 48), 48);
  const std::size_t outstanding = upstream.outstanding;
  for (int i = 0; i < 100'000; ++i) deallocate_blocks(allocate_blocks(1, 48), 48);
  for (int i = 0; i < 20; ++i) deallocate_blocks(allocate_blocks(300, 48), 48);
  EXPECT_EQ(upstream.outstanding, outstanding);
  memory.check_invariants();
}

TEST_F(epoch_slabs, empty_slabs_serve_other_sizes) {
  const epoch e{memory};
  const std::vector<void*> small = allocate_blocks(20'000, 16);
  const std::size_t outstanding = upstream.outstanding;
  deallocate_blocks(small, 16);
  (void)allocate_blocks(250, 1024);
  EXPECT_EQ(upstream.outstanding, outstanding);
  memory.check_invariants();
}

// S3.4
TEST_F(epoch_slabs, keep_kept_blocks_at_their_addresses) {
  std::vector<void*> kept;
  {
    epoch e{memory};
    const std::vector<void*> blocks = allocate_blocks(1000, 100);
    for (std::size_t i = 0; i < blocks.size(); i += 100) {
      std::memset(blocks[i], static_cast<int>(i / 100), 100);
      kept.push_back(blocks[i]);
      EXPECT_EQ(e.keep(blocks[i]), 1u);
      EXPECT_EQ(e.keep(blocks[i]), 0u) << "the block is kept already";
    }
    const epoch_summary end = e.end();
    EXPECT_EQ(end.promoted, 10u);
    EXPECT_EQ(end.reclaimed, 990u);
  }
  EXPECT_EQ(memory.stats().let_go, 10u);
  memory.check_invariants();
  {
    const epoch e{memory};
    (void)allocate_blocks(2000, 100);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (std::size_t byte = 0; byte < 100; ++byte) EXPECT_EQ(static_cast<unsigned char*>(kept[i])[byte], i);
    EXPECT_GT(upstream.outstanding, 0u);
    memory.deallocate(kept[i], 100, 8);
  }
  EXPECT_EQ(upstream.outstanding, 0u) << "the chunk goes back with its last kept block";
  EXPECT_EQ(memory.stats().late, 0u);
  memory.check_invariants();
}

// S3.3
TEST_F(epoch_slabs, move_to_the_outer_epoch_with_their_kept_blocks) {
  epoch outer{memory, "outer"};
  (void)allocate_blocks(10, 64);
  void* result = nullptr;
  {
    epoch inner{memory, "inner"};
    const std::vector<void*> blocks = allocate_blocks(500, 64);
    result = blocks[300];
    EXPECT_EQ(outer.keep(result), 0u) << "the block belongs to the inner epoch";
    EXPECT_EQ(inner.keep(static_cast<std::byte*>(result) + 63), 1u) << "an address inside";
    EXPECT_EQ(inner.end().promoted, 1u);
  }
  EXPECT_EQ(memory.stats().used_blocks, 10u + 1);
  (void)allocate_blocks(500, 64);
  for (std::size_t byte = 0; byte < 64; ++byte) EXPECT_EQ(static_cast<unsigned char*>(result)[byte], 0x5A);
  memory.check_invariants();
  EXPECT_EQ(outer.end().reclaimed, 511u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

// S3.26
TEST_F(epoch_slabs, stay_bounded_if_each_step_frees_the_block_kept_by_the_last) {
  const epoch outer{memory, "training"};
  void* before = memory.allocate(64);
  std::size_t after_10 = 0;
  for (int step = 0; step < 1000; ++step) {
    epoch e{memory, "step"};
    const std::vector<void*> blocks = allocate_blocks(100, 64);
    memory.deallocate(before, 64);
    before = blocks[50];
    e.keep(before);
    (void)e.end();
    if (step == 10) after_10 = upstream.outstanding;
  }
  EXPECT_EQ(upstream.outstanding, after_10);
  memory.check_invariants();
}

TEST_F(epoch_slabs, recognise_late_deallocations_in_returned_memory) {
  std::vector<void*> blocks;
  {
    const epoch e{memory, "request"};
    blocks = allocate_blocks(1000, 64);
  }
  EXPECT_EQ(upstream.outstanding, 0u);
  const violation_recorder recorder;
  deallocate_blocks(blocks, 64);
  EXPECT_EQ(memory.stats().late, 1000u);
  if (check_level >= 2) {
    EXPECT_EQ(violation_recorder::count(violation_kind::late_deallocate), 1000u);
    EXPECT_PRED2(contains, violation_recorder::reports()[0].message, "after 'request' had reclaimed it");
  }
  memory.check_invariants();
}

TEST_F(epoch_slabs, recognise_late_deallocations_next_to_blocks_of_the_next_epoch) {
  const epoch outer{memory};
  std::vector<void*> late;
  {
    const epoch inner{memory};
    late = allocate_blocks(1000, 64);
  }
  const std::vector<void*> live = allocate_blocks(100, 64);
  const violation_recorder recorder;
  std::size_t late_calls = 0;
  for (void* block : late) {
    if (std::ranges::find(live, block) != live.end()) continue;  // it is another block by now
    memory.deallocate(block, 64, 8);
    ++late_calls;
  }
  EXPECT_EQ(late_calls, 900u) << "the next epoch uses the same memory";
  EXPECT_EQ(memory.stats().late, late_calls);
  EXPECT_EQ(memory.stats().used_blocks, live.size());
  deallocate_blocks(live, 64);
  EXPECT_EQ(memory.stats().late, late_calls);
  memory.check_invariants();
}

TEST_F(epoch_slabs, recognise_late_deallocations_while_an_outer_epoch_is_open) {
  const epoch outer{memory};
  std::vector<void*> blocks;
  {
    const epoch inner{memory};
    blocks = allocate_blocks(100, 64);
    memory.deallocate(blocks.back(), 64, 8);  // the thread now remembers the slab
    blocks.pop_back();
  }
  const violation_recorder recorder;
  deallocate_blocks(blocks, 64);
  EXPECT_EQ(memory.stats().late, blocks.size());
  memory.check_invariants();
}

TEST_F(epoch_slabs, ignore_late_frees_of_blocks_whose_memory_the_upstream_reused) {
  pool blocks{&upstream};
  epoch_resource on_pool{&blocks};
  std::vector<void*> late;
  {
    const epoch e{on_pool};
    for (int i = 0; i < 1000; ++i) late.push_back(on_pool.allocate(64));
  }
  // The pool's free chunk serves these blocks, so that they lie at the addresses of the slabs.
  std::vector<std::pair<void*, std::size_t>> ordinary;
  for (int i = 0; i < 40; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 17'000 : 64;
    ordinary.emplace_back(on_pool.allocate(bytes), bytes);
    std::memset(ordinary.back().first, i, bytes);
  }
  const std::size_t used = blocks.stats().used_bytes;
  const violation_recorder recorder;
  std::size_t late_calls = 0;
  for (std::size_t i = 0; i < late.size(); ++i) {
    if (std::ranges::find(ordinary, late[i], &std::pair<void*, std::size_t>::first) != ordinary.end())
      continue;
    on_pool.deallocate(late[i], 64);
    ++late_calls;
  }
  EXPECT_EQ(on_pool.stats().late, late_calls);
  EXPECT_EQ(blocks.stats().used_bytes, used) << "nothing of the ordinary blocks was freed";
  for (auto const& [block, bytes] : ordinary) on_pool.deallocate(block, bytes);
  EXPECT_EQ(blocks.stats().used_bytes, 0u);
  EXPECT_EQ(on_pool.stats().late, late_calls);
  blocks.check_invariants();
}

TEST_F(epoch_slabs, fall_back_to_a_single_block_if_no_chunk_fits) {
  {
    epoch e{memory};
    upstream.fail_from = 0;
    upstream.fail_count = 2;
    EXPECT_NE(memory.allocate(64), nullptr);
    EXPECT_EQ(upstream.calls, 3u) << "a chunk; half of it, the least; then the block";
    EXPECT_NE(memory.allocate(64), nullptr);
    EXPECT_EQ(upstream.calls, 4u) << "no further chunk is requested";
    upstream.fail_from = upstream.calls;
    EXPECT_THROW((void)memory.allocate(64), std::bad_alloc);
    EXPECT_EQ(memory.stats().used_blocks, 2u);
    upstream.fail_from = supply::never;
    memory.check_invariants();
    EXPECT_EQ(e.end().reclaimed, 2u);
  }
  const epoch next{memory};
  const std::size_t calls = upstream.calls;
  (void)allocate_blocks(10, 64);
  EXPECT_EQ(upstream.calls, calls + 1) << "the next outermost epoch requests a chunk again";
}

TEST_F(epoch_slabs, return_kept_blocks_with_the_resource) {
  {
    epoch_resource shorter{&upstream};
    epoch e{shorter};
    void* block = nullptr;
    for (int i = 0; i < 100; ++i) block = shorter.allocate(64);
    e.keep(block);
    (void)e.end();
    EXPECT_GT(upstream.outstanding, 0u);
  }
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(epoch_slabs, return_memory_of_open_epochs_with_the_resource) {
  const violation_recorder recorder;
  auto shorter = std::make_unique<epoch_resource>(&upstream);
  epoch outer{*shorter}, inner{*shorter};
  for (int i = 0; i < 1000; ++i) (void)shorter->allocate(64);
  shorter.reset();
  EXPECT_EQ(violation_recorder::count(violation_kind::scope_outlived), 1u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(epoch_slabs, survive_bookkeeping_failures) {
  recording_resource bookkeeping;
  epoch_resource there{{.bookkeeping = &bookkeeping}, &upstream};
  const epoch e{there};
  std::size_t served = 0;
  for (int i = 0; i < 300; ++i) {
    bookkeeping.fail_from = i % 2 == 0 ? bookkeeping.calls : supply::never;
    try {
      (void)there.allocate(64);
      ++served;
    } catch (std::bad_alloc const&) {
    }
  }
  EXPECT_GT(served, 200u);
  EXPECT_LT(served, 300u) << "no call failed";
  EXPECT_EQ(there.stats().used_blocks, served);
  there.check_invariants();
}

// ---- other threads ----------------------------------------------------------------------------------------

TEST_F(epoch_slabs, accept_deallocations_from_other_threads) {
  epoch e{memory};
  const std::vector<void*> blocks = allocate_blocks(2000, 64);
  const std::size_t outstanding = upstream.outstanding;
  std::thread{[&] { deallocate_blocks(blocks, 64); }}.join();
  EXPECT_EQ(memory.stats().deallocations, 2000u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.stats().used_bytes, 0u);
  memory.check_invariants();
  (void)allocate_blocks(1900, 64);
  EXPECT_EQ(upstream.outstanding, outstanding) << "the chunks are reused";
  memory.check_invariants();
  EXPECT_EQ(e.end().reclaimed, 1900u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

// S3.25
TEST(epoch_slabs_threads, deallocate_each_others_blocks_while_epochs_end) {
  constexpr std::size_t places = 64, rounds = 40;
  epoch_resource memory;
  std::array<std::atomic<void*>, places> shared{};
  on_threads([&](std::size_t thread) {
    std::uint64_t random = thread + 1;
    const auto next = [&] {
      return random = random * 6364136223846793005u + 1442695040888963407u, random >> 33;
    };
    for (std::size_t round = 0; round < rounds; ++round) {
      epoch e{memory};
      for (int i = 0; i < 500; ++i) {
        (void)memory.allocate(16 + next() % 4 * 16);
      }
      for (int i = 0; i < 500; ++i) {
        void* block = memory.allocate(64);
        std::memset(block, static_cast<int>(thread), 64);
        if (next() % 4 == 0) e.keep(block);  // so that whoever takes it may deallocate it at any time
        else continue;
        block = shared[next() % places].exchange(block);
        if (block != nullptr) memory.deallocate(block, 64);
      }
    }
  });
  for (auto& place : shared) {
    if (void* block = place.load()) memory.deallocate(block, 64);
  }
  const epoch_stats stats = memory.stats();
  EXPECT_EQ(stats.late, 0u);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(stats.allocations, storm_threads * rounds * 1000);
  memory.check_invariants();
}

/// Never gives an address twice: so every late deallocation can be recognised.
class growing_memory final : public detail::distinct_resource {
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    return memory_.allocate(bytes, align);
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}

  std::mutex mutex_;
  std::pmr::monotonic_buffer_resource memory_;
};

TEST(epoch_slabs_threads, recognise_late_deallocations_by_other_threads) {
  constexpr std::size_t rounds = 40;
  growing_memory upstream;
  epoch_resource memory{&upstream};
  std::array<std::atomic<void*>, 64> shared{};
  std::atomic<std::size_t> calls{0};
  const auto before = set_violation_handler([](violation const&) {});  // the recorder is for one thread
  on_threads([&](std::size_t thread) {
    std::mt19937_64 random{thread};
    for (std::size_t round = 0; round < rounds; ++round) {
      const epoch e{memory};
      for (int i = 0; i < 500; ++i) {
        // Whoever takes it deallocates it, early or late.
        void* const other = shared[random() % shared.size()].exchange(memory.allocate(64));
        if (other == nullptr) continue;
        memory.deallocate(other, 64);
        ++calls;
      }
    }
  });
  const epoch_stats stats = memory.stats();
  EXPECT_EQ(stats.deallocations + stats.late, calls);
  EXPECT_GT(stats.late, 0u);
  EXPECT_EQ(stats.allocations, storm_threads * rounds * 500);
  EXPECT_EQ(stats.allocations, stats.deallocations + stats.reclaimed);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
  set_violation_handler(before);
  memory.check_invariants();
}

// ---- wrong use --------------------------------------------------------------------------------------------

TEST_F(epoch_slabs, report_a_wrong_size_and_a_block_that_is_free) {
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not look for misuse";
  const violation_recorder recorder;
  const epoch e{memory};
  void* const block = memory.allocate(64);
  memory.deallocate(block, 128);
  memory.deallocate(static_cast<std::byte*>(block) + 16, 64);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
  EXPECT_PRED2(contains, violation_recorder::reports()[0].message, "as a block of 128 bytes aligned to 16");
  EXPECT_EQ(memory.stats().deallocations, 0u);
  memory.deallocate(block, 64);
  memory.deallocate(block, 64);
  EXPECT_EQ(violation_recorder::count(violation_kind::late_deallocate), 1u);
  EXPECT_EQ(memory.stats().deallocations, 1u);
  memory.check_invariants();
}

}  // namespace
}  // namespace tidemark::test
