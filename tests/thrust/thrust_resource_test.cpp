// SPDX-License-Identifier: Apache-2.0
// Strategy: the handle that Thrust's own pools and allocators take, on a resource that records its requests;
// and each of Thrust's ways to use it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/mr/allocator.h>
#include <thrust/mr/disjoint_pool.h>
#include <thrust/mr/disjoint_sync_pool.h>
#include <thrust/mr/new.h>
#include <thrust/mr/polymorphic_adaptor.h>
#include <thrust/mr/pool.h>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry.hpp>
#include <tidemark/thrust.hpp>

#include "logging_resource.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using request = logging_resource::request;
using noted = std::vector<request>;

static_assert(std::is_final_v<thrust_resource<arena>>);
static_assert(
    std::is_base_of_v<thrust::mr::memory_resource<thrust::device_ptr<void>>, thrust_resource<arena>>);
static_assert(std::is_base_of_v<thrust::mr::memory_resource<void*>, thrust_resource<arena, void*>>);
static_assert(std::is_copy_constructible_v<thrust_resource<arena>>);
static_assert(std::is_copy_assignable_v<thrust_resource<arena>>);

// ---- requests to the resource ----

// A.1
TEST(thrust_resources, raise_alignments_to_256_in_allocate_and_deallocate) {
  logging_resource memory;
  thrust_resource<logging_resource, void*> handle{&memory};
  const std::array<std::size_t, 5> aligns{1, 16, 256, 512, 4096};
  for (const std::size_t align : aligns) {
    void* const block = handle.allocate(100, align);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % std::max<std::size_t>(align, 256), 0u);
    handle.deallocate(block, 100, align);
  }
  EXPECT_EQ(memory.allocations, (noted{{100, 256}, {100, 256}, {100, 256}, {100, 512}, {100, 4096}}));
  EXPECT_EQ(memory.deallocations, memory.allocations);
}

TEST(thrust_resources, reject_more_than_ptrdiff_max_bytes) {
  statistics_resource memory{std::pmr::new_delete_resource()};  // which rounds such sizes up to small ones
  thrust_resource handle{&memory};
  constexpr auto max_bytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  for (const std::size_t bytes : {max_bytes + 1, std::numeric_limits<std::size_t>::max() - 8,
                                  std::numeric_limits<std::size_t>::max()}) {
    EXPECT_THROW((void)handle.allocate(bytes), out_of_memory) << bytes;
  }
  EXPECT_EQ(memory.stats().allocations, 0u);
}

// ---- no exceptions from deallocation ----

TEST(thrust_resources, ignore_null) {
  arena step;
  thrust_resource<arena, void*> handle{&step};
  handle.deallocate(nullptr, 100);
  thrust_allocator<int, arena, void*>{&step}.deallocate(nullptr, 0);
  EXPECT_EQ(step.position(), 0u);
}

// A.1
TEST(thrust_resources, warn_with_the_byte_count_if_the_resource_throws_on_deallocate) {
  const warning_recorder warnings;
  logging_resource memory;
  thrust_resource<std::pmr::memory_resource, void*> handle{&memory};
  void* const block = handle.allocate(12345);
  memory.deallocate_throws = true;
  handle.deallocate(block, 12345);
  ASSERT_EQ(warning_recorder::reports().size(), 1u);
  EXPECT_EQ(warning_recorder::reports()[0].kind, warning_kind::refused_return);
  EXPECT_EQ(warning_recorder::reports()[0].resource, "thrust_resource");
  EXPECT_NE(warning_recorder::reports()[0].message.find("12345"), std::string::npos);
}

TEST(thrust_resources, free_blocks_of_a_resource_that_cannot_throw) {
  static_assert(noexcept(std::declval<arena&>().deallocate(nullptr, 1, 1)));
  static_assert(noexcept(std::declval<thrust_resource<arena, void*>&>().do_deallocate(nullptr, 1, 1)));
  static_assert(noexcept(
      std::declval<thrust_resource<std::pmr::memory_resource, void*>&>().do_deallocate(nullptr, 1, 1)));
  const warning_recorder warnings;
  arena step;
  thrust_resource handle{&step};
  handle.deallocate(handle.allocate(100), 100);
  EXPECT_EQ(step.position(), 0u);
  EXPECT_TRUE(warning_recorder::reports().empty());
}

// ---- equality ----

// A.1 A.14
TEST(thrust_resources, are_equal_if_their_resources_are) {
  logging_resource one, twin, other;
  one.twin = &twin;
  twin.twin = &one;
  using handle = thrust_resource<logging_resource>;
  EXPECT_TRUE(handle{&one} == handle{&one});
  EXPECT_TRUE(handle{&one} == handle{&twin});
  EXPECT_FALSE(handle{&one} == handle{&other});
  EXPECT_FALSE(handle{&one} != handle{&one});
  EXPECT_TRUE(handle{&one} != handle{&other});
}

TEST(thrust_resources, compare_through_is_equal_of_the_base) {
  logging_resource one, other;
  const thrust_resource<logging_resource> a{&one}, same{&one}, b{&other};
  const thrust_resource<std::pmr::memory_resource> of_another_class{&one};
  using base = thrust::mr::memory_resource<thrust::device_ptr<void>>;
  base const &a_base = a, &same_base = same, &b_base = b, &another_base = of_another_class;
  EXPECT_TRUE(a_base.is_equal(same_base));
  EXPECT_FALSE(a_base.is_equal(b_base));
  EXPECT_FALSE(a_base.is_equal(another_base));
}

// ---- use by Thrust ----

TEST(thrust_resources, serve_as_upstream_of_a_thrust_pool) {
  statistics_resource counted;
  thrust_resource<statistics_resource, void*> handle{&counted};
  {
    thrust::mr::unsynchronized_pool_resource<decltype(handle)> pool{&handle};
    for (std::size_t bytes = 1; bytes < 100'000; bytes = bytes * 3 + 1)
      pool.deallocate(std::memset(pool.allocate(bytes, 16), 0x55, bytes), bytes, 16);
    EXPECT_GE(counted.stats().allocations, 1u);
  }
  EXPECT_EQ(counted.stats().used_blocks, 0u);
}

}  // namespace
}  // namespace tidemark::test
