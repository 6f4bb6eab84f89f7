// SPDX-License-Identifier: Apache-2.0
// Slabs by themselves: the slabs returned to the upstream, and the times of their return.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include <tidemark/core/os_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/pool/detail/slab_store.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "process_memory.hpp"
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

/// Slabs of three classes, large enough for regions.
class large_slab_store {
 public:
  static constexpr std::size_t all = std::size_t{1} << 30;
  static constexpr std::array<std::size_t, 3> sizes{200, 1000, 3000};

  explicit large_slab_store(std::pmr::memory_resource* upstream) : slabs_{classes_, upstream, 0} {}

  /// Adds a slab and writes to all its pages. @return its first block
  std::byte* add_slab(std::size_t index) {
    (void)slabs_.add_slab(index, 0, all);
    std::byte* first = nullptr;
    block_chain& list = lists_[index];
    for (block_chain carved = slabs_.carve(index, all); carved.blocks > 0;
         carved = slabs_.carve(index, all)) {
      if (first == nullptr) first = reinterpret_cast<std::byte*>(carved.first);
      detail::free_block* last = carved.first;
      while (detail::free_block* const next = detail::next_of(last)) last = next;
      detail::link(last, list.first);
      list = {carved.first, list.blocks + carved.blocks};
    }
    return first;
  }
  /// Adds slabs of each class in turn, until the slabs have this many bytes.
  void grow(std::size_t bytes) {
    for (std::size_t i = 0; slabs_.held_bytes() < bytes; i = (i + 1) % sizes.size()) (void)add_slab(i);
  }
  void release_free_slabs() {
    for (std::size_t i = 0; i < sizes.size(); ++i) (void)slabs_.release_free_slabs(i, lists_[i], all);
  }
  /// Removes the free block that was carved last.
  void* pop(std::size_t index) {
    --lists_[index].blocks;
    return detail::cut_front(lists_[index].first, 1).first;
  }

  detail::slab_store& operator*() { return slabs_; }
  detail::slab_store* operator->() { return &slabs_; }

 private:
  detail::size_classes classes_{"slabs", sizes};
  detail::slab_store slabs_;
  std::array<block_chain, sizes.size()> lists_{};
};

TEST(large_slab_store, has_huge_pages_on_malloc_only) {
  statistics_resource other{std::pmr::new_delete_resource()};  // nothing is known about its memory
  for (std::pmr::memory_resource* upstream :
       std::initializer_list<std::pmr::memory_resource*>{std::pmr::new_delete_resource(), &other}) {
    large_slab_store slabs{upstream};
    slabs.grow(detail::slab_store::min_bytes_with_regions);
    EXPECT_EQ(slabs->unused_region_bytes(), 0u) << "small";
    std::byte* const first = slabs.add_slab(0);
    EXPECT_EQ(slabs->unused_region_bytes() > 0, upstream != &other);
    if (upstream != &other) EXPECT_TRUE(has_huge_page_advice(first));
  }
}

TEST(large_slab_store, costs_at_most_a_twentieth_for_huge_pages) {
  constexpr std::size_t region_bytes = virtual_memory::min_huge_commit_bytes;
  detail::trim_heap();  // malloc then returns no resident memory for a region
  large_slab_store slabs{std::pmr::new_delete_resource()};
  slabs.grow(detail::slab_store::min_bytes_with_regions);
  std::vector<std::byte*> regions;
  for (std::size_t in_regions = 0, i = 0; slabs->held_bytes() < 120 * MiB; i = (i + 1) % slabs.sizes.size()) {
    const std::size_t held = slabs->held_bytes(), unused = slabs->unused_region_bytes();
    std::byte* const first = slabs.add_slab(i);
    if (slabs->unused_region_bytes() > unused) regions.push_back(first);
    in_regions += slabs->held_bytes() - held;
    std::size_t resident = 0;
    for (std::byte* region : regions) resident += resident_bytes(region, region_bytes);
    EXPECT_LE(resident, in_regions + slabs->held_bytes() / 20) << slabs->held_bytes();
  }
  EXPECT_GE(regions.size(), 10u) << "80 MiB";
  EXPECT_LE(regions.size(), 11u) << "with little unused memory";
}

TEST(large_slab_store, returns_a_region_whose_slabs_are_free) {
  large_slab_store slabs{std::pmr::new_delete_resource()};
  slabs.grow(80 * MiB);
  EXPECT_STREQ(slabs->broken_invariant(), nullptr);
  void* const live = slabs.pop(0);
  slabs.release_free_slabs();
  EXPECT_TRUE(slabs->is_block_of(live, 0));
  EXPECT_LE(slabs->held_bytes(), 1 * MiB) << "one slab";
  EXPECT_EQ(slabs->held_bytes() + slabs->unused_region_bytes(), virtual_memory::min_huge_commit_bytes + 64)
      << "one region, with the tag of its end";
  EXPECT_STREQ(slabs->broken_invariant(), nullptr);
}

TEST(large_slab_store, returns_the_pages_of_free_slabs_to_the_system) {
  detail::trim_heap();
  large_slab_store slabs{std::pmr::new_delete_resource()};
  slabs.grow(detail::slab_store::min_bytes_with_regions);
  std::byte* const region = slabs.add_slab(0);
  while (slabs->unused_region_bytes() > 1 * MiB) (void)slabs.add_slab(1);
  const std::size_t before = resident_bytes(region, virtual_memory::min_huge_commit_bytes);
  void* const live = slabs.pop(0);
  slabs.release_free_slabs();
  EXPECT_TRUE(slabs->is_block_of(live, 0));
  EXPECT_GE(before, 7 * MiB);
  EXPECT_LE(resident_bytes(region, virtual_memory::min_huge_commit_bytes), 2 * MiB)
      << "one slab, and the unused part of a huge page";
}

TEST(large_slab_store, reuses_ranges_of_returned_slabs) {
  large_slab_store slabs{std::pmr::new_delete_resource()};
  slabs.grow(60 * MiB);
  void* const live = slabs.pop(0);
  slabs.release_free_slabs();
  slabs.grow(41 * MiB);
  const std::size_t unused = slabs->unused_region_bytes();
  (void)slabs.add_slab(1);
  EXPECT_LT(slabs->unused_region_bytes(), unused);
  EXPECT_TRUE(slabs->is_block_of(live, 0));
}

}  // namespace
}  // namespace tidemark::test
