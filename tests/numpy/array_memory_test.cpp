// SPDX-License-Identifier: Apache-2.0
// The memory behind tidemark_numpy, without Python: each promise of the two classes by itself, and a model
// that compares contents and zeros through random requests.
#include "array_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "mapping_cache.hpp"

namespace {

using tidemark::KiB;
using tidemark::MiB;
using tidemark::numpy::array_memory;
using tidemark::numpy::mapping;
using tidemark::numpy::mapping_cache;

void write(mapping* to, unsigned char value) { std::memset(to + 1, value, to->bytes - sizeof(mapping)); }

unsigned char* byte(mapping* of, std::size_t offset) {
  return reinterpret_cast<unsigned char*>(of + 1) + offset;
}

TEST(mapping_cache, splits_a_large_mapping_for_a_small_request_and_merges_it_later) {
  mapping_cache cache{64 * MiB};
  mapping* const all = cache.allocate(8 * MiB);
  cache.deallocate(all);
  mapping* const first = cache.allocate(1 * MiB);
  mapping* const second = cache.allocate(1 * MiB);
  EXPECT_EQ(first, all);
  EXPECT_EQ(cache.broken_invariant(), nullptr);
  cache.deallocate(first);
  cache.deallocate(second);
  EXPECT_EQ(cache.broken_invariant(), nullptr);
  EXPECT_EQ(cache.allocate(8 * MiB), all);
  EXPECT_EQ(cache.stats().misses, 1u);
  cache.deallocate(all);
}

std::size_t touched_pages(mapping* of) {
  std::vector<unsigned char> states(of->bytes / (4 * KiB));
  EXPECT_EQ(mincore(of, of->bytes, states.data()), 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(states, [](unsigned char state) { return (state & 1) != 0; }));
}

TEST(mapping_cache, returns_pages_of_a_fresh_mapping_with_few_touched_pages) {
  mapping_cache cache{64 * MiB};
  mapping* const first = cache.allocate(16 * MiB);
  ASSERT_EQ(madvise(first, first->bytes, MADV_NOHUGEPAGE), 0) << "a huge page is touched as a whole";
  *byte(first, 5 * MiB + 512 * KiB) = 1;
  *byte(first, 11 * MiB + 512 * KiB) = 1;
  for (int i = 0; i < 2; ++i) {
    cache.deallocate(first);
    ASSERT_EQ(cache.allocate(16 * MiB), first);
    EXPECT_EQ(*byte(first, 5 * MiB + 512 * KiB), 0);
    EXPECT_LE(first->dirty_bytes, 4 * KiB);
    EXPECT_EQ(touched_pages(first), 2u) << "the page of the header, and the page that was read";
  }
  cache.deallocate(first);
}

TEST(mapping_cache, keeps_pages_of_a_mapping_with_many_touched_pages) {
  mapping_cache cache{64 * MiB};
  mapping* const first = cache.allocate(16 * MiB);
  std::memset(first + 1, 1, 8 * MiB);
  for (int i = 0; i < 2; ++i) {  // the second time it is not fresh
    cache.deallocate(first);
    ASSERT_EQ(cache.allocate(16 * MiB), first);
    EXPECT_EQ(first->dirty_bytes, first->bytes);
    EXPECT_GE(touched_pages(first), 2048u);
  }
  cache.deallocate(first);
}

TEST(mapping_cache, makes_a_small_mapping_grow_for_a_larger_request) {
  mapping_cache cache{64 * MiB};
  mapping* const small = cache.allocate(5 * MiB);
  write(small, 7);
  cache.deallocate(small);
  mapping* const grown = cache.allocate(7 * MiB);
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_GE(grown->bytes, 7 * MiB);
  EXPECT_LT(grown->dirty_bytes, 6 * MiB);
  for (std::size_t i = 6 * MiB; i < 7 * MiB; i += 4 * KiB) ASSERT_EQ(*byte(grown, i), 0);
  cache.deallocate(grown);
}

TEST(mapping_cache, skips_mappings_smaller_than_half_of_a_request) {
  mapping_cache cache{64 * MiB};
  cache.deallocate(cache.allocate(1 * MiB));
  mapping* const large = cache.allocate(16 * MiB);
  EXPECT_EQ(cache.stats().misses, 2u);
  EXPECT_GE(cache.stats().cached_bytes, 1 * MiB);
  cache.deallocate(large);
}

// N.3
TEST(mapping_cache, unmaps_the_mapping_free_for_longest) {
  mapping_cache cache{10 * MiB};
  std::vector<mapping*> made;
  for (int i = 0; i < 4; ++i) made.push_back(cache.allocate(4 * MiB));
  for (mapping* each : made) {
    cache.deallocate(each);
    EXPECT_LE(cache.stats().cached_bytes, 10 * MiB);
    EXPECT_EQ(cache.broken_invariant(), nullptr);
  }
  EXPECT_EQ(cache.allocate(4 * MiB), made[3]);
  EXPECT_EQ(cache.allocate(4 * MiB), made[2]);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
  cache.deallocate(made[2]);
  cache.deallocate(made[3]);
}

TEST(mapping_cache, counts_unused_bytes_of_live_mappings_against_the_limit) {
  mapping_cache cache{1 * MiB};
  mapping* const first = cache.allocate(800 * KiB);
  cache.deallocate(first);
  mapping* const shorter = cache.allocate(600 * KiB);
  EXPECT_EQ(shorter, first);  // with 200 KiB that are too little for others
  mapping* const second = cache.allocate(900 * KiB);
  cache.deallocate(second);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
  cache.deallocate(shorter);
  EXPECT_GT(cache.stats().cached_bytes, 0u);
}

TEST(mapping_cache, resizes_into_a_free_neighbour_without_moving) {
  mapping_cache cache{64 * MiB};
  cache.deallocate(cache.allocate(16 * MiB));
  mapping* const live = cache.allocate(1 * MiB);
  write(live, 3);
  EXPECT_EQ(cache.resize(live, 12 * MiB), live);
  EXPECT_EQ(*byte(live, 1 * MiB - 1), 3);
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_EQ(cache.broken_invariant(), nullptr);
  EXPECT_EQ(cache.resize(live, 1 * MiB), live);
  EXPECT_EQ(cache.broken_invariant(), nullptr);
  EXPECT_GE(cache.stats().cached_bytes, 14 * MiB);
  cache.deallocate(live);
}

TEST(mapping_cache, rejects_impossible_sizes_and_changes_nothing) {
  mapping_cache cache{1 * MiB};
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
  mapping* const live = cache.allocate(1 * MiB);
  for (const std::size_t bytes : {largest, largest - 63, largest / 2, largest / 4}) {
    EXPECT_THROW((void)cache.allocate(bytes), std::bad_alloc);
    EXPECT_EQ(cache.resize(live, bytes), nullptr);
  }
  EXPECT_EQ(cache.broken_invariant(), nullptr);
  EXPECT_GE(cache.stats().used_bytes, 1 * MiB);
  cache.deallocate(live);
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

// ---- array_memory -----------------------------------------------------------------------------------------

TEST(array_memory, aligns_blocks_of_64_bytes_or_more_to_cache_lines) {
  array_memory memory{{.max_cached_bytes = 64 * MiB, .huge_pages = true}};
  for (std::size_t bytes = 0; bytes < 2 * MiB; bytes += 1 + bytes / 3) {
    void* const block = memory.allocate(bytes);
    EXPECT_EQ(tidemark::detail::address_of(block) % (bytes >= 64 ? 64 : 16), 0u) << bytes;
    EXPECT_EQ(array_memory::bytes_of(block), bytes);
    memory.deallocate(block);
  }
}

TEST(array_memory, keeps_nothing_once_it_is_retired) {
  array_memory memory{{.max_cached_bytes = 64 * MiB, .huge_pages = true}};
  std::vector<void*> blocks;
  for (int i = 0; i < 3000; ++i) blocks.push_back(memory.allocate(1000));
  for (int i = 0; i < 8; ++i) blocks.push_back(memory.allocate(1 * MiB));
  memory.retire();
  for (void* block : blocks) memory.deallocate(block);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_LE(memory.stats().cached_bytes, 1 * MiB + 64 * KiB);
}

TEST(array_memory, returns_cached_memory_under_memory_pressure) {
  array_memory memory{{.max_cached_bytes = 64 * MiB, .huge_pages = true}};
  memory.deallocate(memory.allocate(9 * MiB));
  EXPECT_GE(memory.stats().cached_bytes, 9 * MiB);
  (void)tidemark::signal_memory_pressure();
  EXPECT_LT(memory.stats().cached_bytes, 1 * MiB);
}

// Blocks whose bytes all have one value of their own.
class blocks_model {
 public:
  blocks_model(array_memory& memory, unsigned seed) : memory_{memory}, random_{seed} {}
  ~blocks_model() {
    while (!live_.empty()) free_one();
  }

  void step() {
    const unsigned choice = pick(8);
    if (live_.size() < 40 && (choice < 4 || live_.empty())) allocate_one();
    else if (choice < 6) free_one();
    else resize_one();
  }

 private:
  struct block {
    unsigned char* first;
    std::size_t bytes;
    unsigned char value;
  };

  unsigned pick(unsigned n) { return static_cast<unsigned>(random_() % n); }
  std::size_t any_size() {
    switch (pick(4)) {
      case 0:
        return pick(600);
      case 1:
        return pick(400'000);
      case 2:
        return 200'000 + pick(3'000'000);
      default:
        return pick(12'000'000);
    }
  }
  // All of a small block, and samples of a large one.
  static std::size_t next(std::size_t i, std::size_t bytes) { return bytes < 4096 ? i + 1 : i + 509; }
  static void expect_value(unsigned char const* first, std::size_t bytes, unsigned char value) {
    for (std::size_t i = 0; i < bytes; i = next(i, bytes)) ASSERT_EQ(first[i], value);
    if (bytes != 0) ASSERT_EQ(first[bytes - 1], value);
  }
  void fill(block& of) { std::memset(of.first, of.value = static_cast<unsigned char>(random_()), of.bytes); }

  void allocate_one() {
    const std::size_t bytes = any_size();
    const bool zeroed = pick(2) == 0;
    void* const first = zeroed ? memory_.allocate_zeroed(bytes) : memory_.allocate(bytes);
    live_.push_back({static_cast<unsigned char*>(first), bytes, 0});
    if (zeroed) expect_value(live_.back().first, bytes, 0);
    fill(live_.back());
  }
  void free_one() {
    std::swap(live_[pick(static_cast<unsigned>(live_.size()))], live_.back());
    expect_value(live_.back().first, live_.back().bytes, live_.back().value);
    memory_.deallocate(live_.back().first);
    live_.pop_back();
  }
  void resize_one() {
    block& of = live_[pick(static_cast<unsigned>(live_.size()))];
    const std::size_t bytes = any_size(), kept = std::min(bytes, of.bytes);
    of.first = static_cast<unsigned char*>(memory_.reallocate(of.first, bytes));
    expect_value(of.first, kept, of.value);
    of.bytes = bytes;
    fill(of);
  }

  array_memory& memory_;
  std::mt19937 random_;
  std::vector<block> live_;
};

// N.2
TEST(array_memory, keeps_contents_and_its_limit_through_random_requests) {
  for (const std::size_t limit : {std::size_t{0}, 1 * MiB, 32 * MiB, 256 * MiB}) {
    array_memory memory{{.max_cached_bytes = limit, .huge_pages = true}};
    {
      blocks_model model{memory, 24};
      for (int i = 0; i < 1500; ++i) {
        model.step();
        ASSERT_LE(memory.stats().cached_bytes, limit);
        ASSERT_EQ(memory.broken_invariant(), nullptr);
      }
    }
    EXPECT_EQ(memory.stats().used_bytes, 0u);
    EXPECT_EQ(memory.broken_invariant(), nullptr);
  }
}

TEST(array_memory, serves_several_threads) {
  array_memory memory{{.max_cached_bytes = 32 * MiB, .huge_pages = true}};
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 0; seed < 3; ++seed) {
      threads.emplace_back([&memory, seed] {
        blocks_model model{memory, seed};
        for (int i = 0; i < 1000; ++i) model.step();
      });
    }
  }
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.broken_invariant(), nullptr);
}

}  // namespace
