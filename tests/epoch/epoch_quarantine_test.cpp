// SPDX-License-Identifier: Apache-2.0
// Strategy: the fate of memory after its epoch: first with containers that return it late, then the
// quarantine itself, in an upstream that accepts each block once and reports the order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory_resource>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/pool/pool.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "rewound_resource.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

// ---- a container that outlives its epoch ------------------------------------------------------------------

using numbers = std::pmr::vector<int>;

class late_containers : public testing::Test {
 protected:
  /// A vector whose epoch ends here.
  void outlive(epoch_resource& memory) {
    epoch e{memory, "step"};
    vector_.emplace(100, 7, &memory);
    where_ = vector_->data();
    EXPECT_EQ(e.end().reclaimed, 1u);
  }

  recording_resource upstream;
  std::optional<numbers> vector_;
  void* where_ = nullptr;
};

TEST_F(late_containers, return_no_memory_twice) {
  const violation_recorder recorder;
  epoch_resource memory{{.max_quarantine_bytes = 0, .name = "steps"}, &upstream};
  outlive(memory);
  EXPECT_EQ(upstream.outstanding, 0u);
  vector_.reset();
  EXPECT_EQ(memory.stats().late, 1u);
  ASSERT_EQ(violation_recorder::reports().size(), check_level >= 2 ? 1u : 0u);
  if (check_level >= 2) {
    EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::late_deallocate);
    std::array<char, 200> expected{};
    (void)std::snprintf(expected.data(), expected.size(),
                        "epoch_resource 'steps': block %p was deallocated after 'step' had reclaimed it",
                        where_);
    EXPECT_EQ(violation_recorder::reports()[0].message, expected.data());
  }
  EXPECT_EQ(memory.stats().deallocations, 0u);
  memory.check_invariants();
}

TEST_F(late_containers, return_memory_that_their_epoch_kept) {
  epoch_resource memory{{.max_quarantine_bytes = 0}, &upstream};
  {
    epoch e{memory};
    vector_.emplace(100, 7, &memory);
    EXPECT_EQ(e.keep(*vector_), 1u);
  }
  EXPECT_EQ(vector_->at(99), 7);
  vector_.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(memory.stats().late, 0u);
}

TEST_F(late_containers, are_always_recognised_in_quarantine) {
  const violation_recorder recorder;
  made_up_memory device;
  epoch_resource memory{{.max_quarantine_bytes = 4 * KiB, .host_memory = false}, &device};
  void* late = nullptr;
  with_epoch(memory, [&] { late = memory.allocate(64); });
  epoch e{memory};
  EXPECT_NE(memory.allocate(64), late);
  for (std::uint64_t times = 1; times <= 3; ++times) {
    memory.deallocate(late, 64);
    EXPECT_EQ(memory.stats().late, times);
  }
  EXPECT_EQ(violation_recorder::count(violation_kind::late_deallocate), check_level >= 2 ? 3u : 0u);
  EXPECT_EQ(e.end().reclaimed, 1u);
}

// ---- the quarantine ---------------------------------------------------------------------------------------

class quarantine : public testing::Test {
 protected:
  /// Reclaims blocks of that many bytes.
  static std::vector<void*> reclaim(epoch_resource& memory, std::size_t blocks, std::size_t bytes) {
    std::vector<void*> handed_out(blocks);
    epoch e{memory};
    for (void*& block : handed_out) block = memory.allocate(bytes, 64);
    return handed_out;
  }

  recording_resource upstream;
  epoch_resource memory{{.max_quarantine_bytes = 4 * KiB}, &upstream};
};

TEST_F(quarantine, is_enabled_by_default_only_at_level_2) {
  const epoch_resource by_default{&upstream};
  EXPECT_EQ(by_default.options().max_quarantine_bytes, check_level >= 2 ? 64 * MiB : 0u);
}

// S3.35
TEST_F(quarantine, holds_reclaimed_blocks_up_to_its_limit) {
  for (std::size_t blocks = 1; blocks <= 10; ++blocks) {
    reclaim(memory, 1, 1 * KiB);
    const std::size_t expected = std::min<std::size_t>(blocks, 4) * KiB;
    EXPECT_EQ(memory.stats().quarantined_bytes, expected);
    EXPECT_EQ(upstream.outstanding, expected);
    memory.check_invariants();
  }
}

TEST_F(quarantine, evicts_the_oldest_block_first) {
  rewound_resource ordered;
  epoch_resource in_order{{.max_quarantine_bytes = 3 * 64, .host_memory = false}, &ordered};
  std::vector<void*> expected;
  expected.reserve(8);
  for (int i = 0; i < 8; ++i) expected.push_back(reclaim(in_order, 1, 64).front());
  (void)in_order.release_quarantine();
  EXPECT_EQ(ordered.came_back, expected);
}

TEST_F(quarantine, holds_reclaimed_blocks_no_larger_than_its_limit_until_released) {
  reclaim(memory, 1, 1 * KiB);
  reclaim(memory, 1, 4 * KiB + 1);
  EXPECT_EQ(memory.stats().quarantined_bytes, 1 * KiB) << "and nothing left it in vain";
  EXPECT_EQ(upstream.outstanding, 1 * KiB);
  reclaim(memory, 3, 1 * KiB);
  reclaim(memory, 1, 2500);
  EXPECT_EQ(memory.stats().quarantined_bytes, 1 * KiB + 2500) << "as many left as it needs";
  with_epoch(memory, [&] { const buffer<int> temporary{memory, 8}; });
  EXPECT_EQ(memory.release_quarantine(), 1 * KiB + 2500);
  EXPECT_EQ(memory.release_quarantine(), 0u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(quarantine, is_released_if_the_upstream_is_exhausted) {
  reclaim(memory, 3, 1 * KiB);
  upstream.fail_from = upstream.calls;
  const buffer<char> served{memory, 100};
  EXPECT_EQ(upstream.outstanding, 100u);
  reclaim(memory, 3, 1 * KiB);
  epoch e{memory};
  upstream.fail_from = upstream.calls;
  const buffer<char> served_in_epoch{memory, 100};
  EXPECT_EQ(memory.stats().quarantined_bytes, 0u);
}

TEST_F(quarantine, fails_the_request_if_releasing_the_quarantine_does_not_help) {
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
  EXPECT_EQ(upstream.calls, 1u) << "asked once";
  reclaim(memory, 3, 1 * KiB);
  const std::size_t before = upstream.calls;
  upstream.fail_from = before;
  upstream.fail_count = 2;
  EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
  EXPECT_EQ(upstream.calls, before + 2) << "asked twice";
  memory.check_invariants();
}

TEST_F(quarantine, frees_blocks_that_it_has_no_memory_to_record) {
  recording_resource bookkeeping;
  epoch_resource noting{{.max_quarantine_bytes = 1 * MiB, .bookkeeping = &bookkeeping}, &upstream};
  std::vector<void*> blocks(100);
  {
    epoch e{noting};
    for (void*& block : blocks) block = noting.allocate(64);
    bookkeeping.fail_from = bookkeeping.calls;
    bookkeeping.fail_count = supply::never;
  }
  EXPECT_EQ(upstream.outstanding, noting.stats().quarantined_bytes);
  EXPECT_LT(upstream.outstanding, 100u * 64);
  noting.check_invariants();
}

TEST_F(quarantine, poisons_its_blocks) {
  auto* const block = static_cast<unsigned char*>(reclaim(memory, 1, 100).front());
#if TIDEMARK_ASAN
  EXPECT_EQ(__asan_region_is_poisoned(block, 100), block);
  (void)memory.release_quarantine();
#elif TIDEMARK_MSAN
  GTEST_SKIP() << "MemorySanitizer would report the look at it";
#else
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not fill it";
  EXPECT_EQ(block[0], detail::freed_fill);
  EXPECT_EQ(block[99], detail::freed_fill);
#endif
}

TEST_F(quarantine, returns_unpoisoned_memory_to_the_upstream) {
  pool blocks;  // writes into deallocated blocks
  epoch_resource on_pool{{.max_quarantine_bytes = 4 * KiB}, &blocks};
  reclaim(on_pool, 10, 100);
  (void)on_pool.release_quarantine();
  std::memset(blocks.allocate(100, 64), 1, 100);
  blocks.release();
}

// Rewound before it has its blocks back, though it should not be.
TEST_F(quarantine, does_not_free_the_successor_of_a_rewound_block) {
  rewound_resource rewound;
  epoch_resource on_rewound{{.max_quarantine_bytes = 4 * KiB, .host_memory = false}, &rewound};
  reclaim(on_rewound, 1, 64);
  rewound.rewind();
  {
    epoch e{on_rewound};
    const buffer<char> successor{on_rewound, 128};
    EXPECT_EQ(on_rewound.release_quarantine(), 0u);
    EXPECT_TRUE(successor.is_live());
    EXPECT_TRUE(rewound.came_back.empty());
    on_rewound.check_invariants();
  }
  (void)on_rewound.release_quarantine();
  EXPECT_EQ(rewound.came_back.size(), 1u);
  EXPECT_EQ(on_rewound.stats().quarantined_bytes, 0u);
}

TEST_F(quarantine, returns_an_address_once_if_it_is_held_twice) {
  rewound_resource rewound;
  epoch_resource on_rewound{{.max_quarantine_bytes = 4 * KiB, .host_memory = false}, &rewound};
  reclaim(on_rewound, 1, 64);
  rewound.rewind();
  reclaim(on_rewound, 1, 128);
  EXPECT_EQ(on_rewound.release_quarantine(), 128u);
  EXPECT_EQ(rewound.came_back.size(), 1u);
}

TEST_F(quarantine, holds_blocks_reclaimed_by_a_buffer_group) {
  buffer<char> a{memory, 100};
  buffer_group tape{memory};
  tape.add(a);
  tape.close();
  EXPECT_EQ(memory.stats().quarantined_bytes, 100u);
}

// ---- findings of level 2 in a deallocation ----------------------------------------------------------------

class epoch_misuse : public testing::Test {
 protected:
  void SetUp() override {
    if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not look";
  }

  recording_resource upstream;
};

TEST_F(epoch_misuse, deallocation_with_a_wrong_size_is_reported_and_ignored) {
  const violation_recorder recorder;
  epoch_resource memory{&upstream};
  epoch e{memory};
  void* const block = memory.allocate(64, 8);
  memory.deallocate(block, 60, 8);
  memory.deallocate(block, 64, 16);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
  for (char const* deallocated : {"60 aligned to 8", "64 aligned to 16"}) {
    EXPECT_TRUE(std::ranges::any_of(violation_recorder::reports(), [&](auto const& one) {
      return one.message.starts_with("epoch_resource 'epochs': block ") &&
             one.message.ends_with(std::string{" of 64 bytes aligned to 8 was deallocated as "} +
                                   deallocated);
    }));
  }
  EXPECT_EQ(memory.stats().used_blocks, 1u);
  EXPECT_EQ(e.end().reclaimed, 1u);
}

TEST_F(epoch_misuse, double_deallocation_is_reported_and_frees_once) {
  const violation_recorder recorder;
  made_up_memory device;
  recording_resource recorded{&device};
  epoch_resource memory{{.host_memory = false}, &recorded};
  epoch e{memory};
  void* const by_resource = memory.allocate(64);
  buffer<char> by_buffer{memory, 128};
  void* const storage = by_buffer.storage().address();
  memory.deallocate(by_resource, 64);
  by_buffer.release();
  memory.deallocate(by_resource, 64);
  memory.deallocate(storage, 128, 64);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
  EXPECT_TRUE(violation_recorder::reports()[0].message.ends_with(" was deallocated twice"));
  e.end();
  void* const again = memory.allocate(64);
  ASSERT_EQ(again, by_resource) << "not a test otherwise";
  memory.deallocate(again, 64);
  EXPECT_EQ(violation_recorder::reports().size(), 2u) << "an ordinary block at that address is another";
  memory.deallocate(again, 64);
  EXPECT_EQ(violation_recorder::reports().size(), 3u);
}

}  // namespace
}  // namespace tidemark::test
