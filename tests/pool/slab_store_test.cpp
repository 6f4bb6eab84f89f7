// SPDX-License-Identifier: Apache-2.0
// Slabs by themselves: the slabs returned to the upstream, and the times of their return.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include <tidemark/pool/detail/slab_store.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

using detail::block_chain;

class slab_store : public testing::Test {
 protected:
  static constexpr std::size_t block_bytes = 64, slab_blocks = 16, all = std::size_t{1} << 30;

  // Returns a new slab, whose blocks all belong to the caller.
  block_chain slab() {
    (void)slabs_.add_slab(0, slab_blocks, all);
    block_chain blocks = slabs_.carve(0, all);
    EXPECT_EQ(blocks.blocks, slab_blocks);
    return blocks;
  }
  void expect_invariants() { EXPECT_STREQ(slabs_.broken_invariant(), nullptr); }

  recording_resource upstream_;
  std::array<std::size_t, 1> sizes_{block_bytes};
  detail::size_classes classes_{"slabs", sizes_};
  detail::slab_store slabs_{classes_, &upstream_, 0};
};

TEST_F(slab_store, returns_a_slab_all_of_whose_blocks_were_stranded_at_the_next_release) {
  block_chain first = slab();
  const block_chain live = slab();  // which is the one that is carved
  EXPECT_EQ(slabs_.strand(0, first, all), slab_blocks)
      << "as a trim does before the last block is seen to be free";
  expect_invariants();
  block_chain none{};
  (void)slabs_.release_free_slabs(0, none, all);
  EXPECT_EQ(slabs_.held_bytes(), slab_blocks * block_bytes) << "the second";
  EXPECT_EQ(slabs_.stranded_bytes(), 0u);
  expect_invariants();
  EXPECT_EQ(live.blocks, slab_blocks);
}

TEST_F(slab_store, returns_slabs_skipped_by_a_partial_release) {
  block_chain first = slab(), second = slab();
  const block_chain live = slab();
  (void)slabs_.strand(0, first, all);
  (void)slabs_.strand(0, second, all);
  for (std::size_t left = 3; left > 1; --left) {
    expect_invariants();
    block_chain none{};
    EXPECT_EQ(slabs_.held_bytes(), left * slab_blocks * block_bytes);
    (void)slabs_.release_free_slabs(0, none, 1);
  }
  EXPECT_EQ(slabs_.held_bytes(), slab_blocks * block_bytes);
  expect_invariants();
  EXPECT_EQ(live.blocks, slab_blocks);
}

TEST_F(slab_store, returns_a_slab_that_is_stranded_in_parts) {
  block_chain first = slab();
  const block_chain live = slab();
  while (first.blocks != 0) {
    (void)slabs_.strand(0, first, 3 * block_bytes);
    expect_invariants();
  }
  block_chain none{};
  (void)slabs_.release_free_slabs(0, none, all);
  EXPECT_EQ(slabs_.held_bytes(), slab_blocks * block_bytes);
  EXPECT_EQ(live.blocks, slab_blocks);
}

}  // namespace
}  // namespace tidemark::test
