// SPDX-License-Identifier: Apache-2.0
// Strategy: a counting operator new replaces the global one. The standard's resources take all their memory
// from their upstream. An upstream with its own buffer therefore makes no heap allocation.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <tidemark/compat.hpp>

#include "counting_new.hpp"

namespace tidemark {
namespace {

template <class Resource>
void use(std::pmr::memory_resource* upstream) {
  Resource resource{upstream};
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 500; ++i) {
      void* const block = resource.allocate(i * 2, std::size_t{1} << i % 8);
      if (i % 2 == 0) resource.deallocate(block, i * 2, std::size_t{1} << i % 8);
    }
    resource.deallocate(resource.allocate(300'000), 300'000);
    resource.release();
  }
}

// D.5
TEST(compat_heap, takes_all_memory_from_the_upstream) {
  static std::array<std::byte, 4'000'000> buffer;
  const auto check = [](auto resource_type) {
    std::pmr::monotonic_buffer_resource upstream{buffer.data(), buffer.size(),
                                                 std::pmr::null_memory_resource()};
    const std::size_t news = test::news, mallocs = test::mallocs;
    use<typename decltype(resource_type)::type>(&upstream);
    EXPECT_EQ(test::news, news);
    EXPECT_EQ(test::mallocs, mallocs);
  };
  check(std::type_identity<compat::monotonic_buffer_resource>{});
  check(std::type_identity<compat::unsynchronized_pool_resource>{});
  check(std::type_identity<compat::synchronized_pool_resource>{});
}

}  // namespace
}  // namespace tidemark
