// SPDX-License-Identifier: Apache-2.0
// Strategy: faults that other arenas had, each with the numbers that showed it there.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <cstring>

#include "recording_supply.hpp"

namespace tidemark {
namespace {

TEST(regressions, push_aligned_beyond_the_first_commit_is_zeroed) {
  for (std::size_t reserve : {64 * KiB, 1 * MiB, 64 * MiB}) {
    arena a{{.reserve = reserve}};
    (void)a.allocate(16);
    auto* block = static_cast<unsigned char*>(a.push_bytes(16, 128 * KiB));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (128 * KiB), 0u);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(block[i], 0);
    std::memset(block, 1, 16);
    a.check_invariants();
  }
}

/// 15 blocks of 128 bytes, each rewound, must not change the memory that the arena holds.
template <class Arena>
void expect_rewound_small_blocks_to_take_nothing(Arena& a) {
  const std::size_t reserved = a.stats().reserved_bytes, committed = a.stats().committed_bytes;
  for (int i = 0; i < 15; ++i) {
    const arena_mark mark = a.mark();
    (void)a.allocate(128);
    a.rewind(mark);
  }
  EXPECT_EQ(a.stats().reserved_bytes, reserved);
  EXPECT_EQ(a.stats().committed_bytes, committed);
}

TEST(regressions, small_blocks_after_large_blocks_in_one_range_add_no_memory) {
  arena a;
  for (int i = 0; i < 3; ++i) (void)a.allocate(139'040);
  expect_rewound_small_blocks_to_take_nothing(a);
}

// In chunks that the large blocks filled the first small block may need one more; the others must not.
template <class Arena>
void expect_small_blocks_behind_large_ones_to_be_reused(Arena& a) {
  for (int i = 0; i < 3; ++i) (void)a.allocate(139'040);
  (void)a.allocate(128);
  a.pop(128);
  expect_rewound_small_blocks_to_take_nothing(a);
}

TEST(regressions, small_blocks_rewound_after_large_blocks_do_not_grow_the_footprint) {
  for (std::size_t reserve : {4 * KiB, 64 * KiB, 128 * KiB, 1 * MiB}) {
    arena a{{.reserve = reserve}};
    expect_small_blocks_behind_large_ones_to_be_reused(a);
  }
  upstream_arena b;
  expect_small_blocks_behind_large_ones_to_be_reused(b);
}

TEST(regressions, large_block_between_small_blocks_adds_little_more_than_its_size) {
  arena a;
  for (std::size_t bytes : {std::size_t{10}, 1 * MiB, std::size_t{10}}) (void)a.allocate(bytes);
  EXPECT_LE(a.stats().committed_bytes, 1 * MiB + 128 * KiB);

  arena chunked{{.reserve = 64 * KiB}};
  for (std::size_t bytes : {std::size_t{10}, 1 * MiB, std::size_t{10}}) (void)chunked.allocate(bytes);
  EXPECT_LE(chunked.stats().reserved_bytes, 1 * MiB + 128 * KiB);

  test::recording_resource upstream;
  upstream_arena b{&upstream};
  for (std::size_t bytes : {std::size_t{10}, 1 * MiB, std::size_t{10}}) (void)b.allocate(bytes);
  EXPECT_LE(upstream.outstanding, 1 * MiB + 4 * KiB + 16 * KiB);
}

// The mark was taken without memory, so its address names no chunk. The rewind stayed in the later chunk, and
// a deallocation then left it below the scope.
TEST(regressions, mark_of_an_empty_arena_rewinds_to_its_first_chunk) {
  upstream_arena a{std::size_t{4096}, std::pmr::new_delete_resource()};
  const arena_mark empty = a.mark();
  void* const first = a.allocate(16);
  a.deallocate(first, 16);
  (void)a.allocate(100'000);
  a.rewind(empty);
  EXPECT_EQ(a.position(), 0u);
  EXPECT_EQ(a.allocate(16), first);
  a.rewind(empty);
  {
    upstream_arena::scope scope{a};
    a.deallocate(a.allocate(100), 100);
    (void)a.allocate(50);
  }
  EXPECT_EQ(a.position(), 0u);
  a.check_invariants();
}

}  // namespace
}  // namespace tidemark
