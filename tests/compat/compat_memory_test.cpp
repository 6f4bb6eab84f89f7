// SPDX-License-Identifier: Apache-2.0
// The resources of compat take no more memory than libstdc++'s. Both play the same requests, and the bytes
// that their upstreams then hold are compared.
#if defined(__GLIBCXX__) || __has_include(<bits/c++config.h>)

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <random>
#include <vector>

#include <tidemark/compat.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

// Bytes that the upstream of a resource holds for blocks of these sizes.
template <class Resource>
std::size_t held_for(std::vector<std::size_t> const& sizes) {
  recording_resource upstream;
  Resource memory{&upstream};
  for (const std::size_t bytes : sizes) (void)memory.allocate(bytes, bytes % 16 == 0 ? 16 : 1);
  return upstream.outstanding;
}

std::vector<std::size_t> drawn(std::size_t count, std::size_t least, std::size_t most) {
  std::mt19937_64 random{count + most};
  std::vector<std::size_t> sizes(count);
  for (std::size_t& each : sizes) each = least + random() % (most - least + 1);
  return sizes;
}

std::vector<std::size_t> alternating(std::size_t count, std::size_t small, std::size_t large) {
  std::vector<std::size_t> sizes(count);
  for (std::size_t i = 0; i < count; ++i) sizes[i] = i % 2 == 0 ? large + i : small;
  return sizes;
}

template <class Ours>
class compat_pool_memory : public testing::Test {};
using pools = testing::Types<compat::unsynchronized_pool_resource, compat::synchronized_pool_resource>;
TYPED_TEST_SUITE(compat_pool_memory, pools, );

TYPED_TEST(compat_pool_memory, is_at_most_that_of_libstdcxx_for_elements_of_one_size) {
  std::size_t sum_of_std = 0, sum = 0;
  for (std::size_t bytes = 8; bytes <= 4096; bytes += bytes < 512 ? 8 : 160) {
    for (const std::size_t count : {10u, 100u, 1000u, 10'000u}) {
      const std::vector<std::size_t> sizes(count, bytes);
      const std::size_t of_std = held_for<std::pmr::unsynchronized_pool_resource>(sizes);
      const std::size_t ours = held_for<TypeParam>(sizes);
      // One chunk more or less than the other's.
      EXPECT_LE(ours, of_std + of_std / 2 + 1000) << count << " elements of " << bytes;
      sum_of_std += of_std;
      sum += ours;
    }
  }
  EXPECT_LE(sum, sum_of_std);
}

TYPED_TEST(compat_pool_memory, is_at_most_that_of_libstdcxx_for_elements_of_many_sizes) {
  for (auto const& sizes : {drawn(10'000, 1, 300), drawn(100'000, 40, 250), drawn(20'000, 1, 2000),
                            drawn(1'000'000, 1, 250), drawn(50'000, 130, 160), alternating(1000, 10, 3000)}) {
    const std::size_t of_std = held_for<std::pmr::unsynchronized_pool_resource>(sizes);
    EXPECT_LE(held_for<TypeParam>(sizes), of_std + of_std / 10)
        << sizes.size() << " elements, one of " << sizes[0];
  }
}

TYPED_TEST(compat_pool_memory, is_at_most_a_fifth_more_than_the_request) {
  for (std::size_t bytes = 8; bytes <= 4096; ++bytes) {
    recording_resource upstream;
    TypeParam memory{std::pmr::pool_options{.max_blocks_per_chunk = 1, .largest_required_pool_block = 8192},
                     &upstream};
    (void)memory.allocate(bytes, 1);
    const std::size_t before = upstream.outstanding;
    (void)memory.allocate(bytes, 1);
    EXPECT_LE(upstream.outstanding - before, bytes + std::max<std::size_t>(7, bytes / 4)) << bytes;
  }
}

}  // namespace
}  // namespace tidemark::test

#endif
