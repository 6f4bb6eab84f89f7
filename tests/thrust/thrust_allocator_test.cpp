// SPDX-License-Identifier: Apache-2.0
// Strategy: the allocator by itself, on a resource that records requests: the guarantees for containers.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include <thrust/device_ptr.h>
#include <thrust/universal_ptr.h>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/thrust.hpp>

#include "logging_resource.hpp"

namespace tidemark::test {
namespace {

using request = logging_resource::request;
using noted = std::vector<request>;

gpu::stream_handle stream_at(std::uintptr_t address) {
  return reinterpret_cast<gpu::stream_handle>(
      address);  // NOLINT(performance-no-int-to-ptr): it is never used
}

// ---- types ----

using of_device = thrust_allocator<int>;
using of_universal = thrust_allocator<int, arena, thrust::universal_ptr<void>>;
using of_host = thrust_allocator<int, arena, void*>;

static_assert(std::is_same_v<of_device::pointer, thrust::device_ptr<int>>);
static_assert(std::is_same_v<of_device::const_pointer, thrust::device_ptr<int const>>);
static_assert(std::is_same_v<of_universal::pointer, thrust::universal_ptr<int>>);
static_assert(std::is_same_v<of_host::pointer, int*>);
static_assert(std::is_same_v<of_host::const_pointer, int const*>);
static_assert(std::is_same_v<of_host::rebind<double>::other, thrust_allocator<double, arena, void*>>);

// No default resource exists, and null is not a resource.
static_assert(!std::is_default_constructible_v<of_device>);
static_assert(!std::is_constructible_v<of_device, std::nullptr_t>);
// From a resource, and from the allocator of other elements of the same resource, without a cast.
static_assert(std::is_convertible_v<arena*, of_device>);
static_assert(std::is_convertible_v<arena*, of_host>);
static_assert(std::is_convertible_v<thrust_allocator<double>, of_device>);
// Not from another class of resources, nor for pointers of another kind.
static_assert(!std::is_convertible_v<std::pmr::memory_resource*, of_host>);
static_assert(!std::is_convertible_v<thrust_allocator<int, arena, void*>, of_universal>);

static_assert(std::is_nothrow_copy_constructible_v<of_device> &&
              std::is_nothrow_move_assignable_v<of_device>);
static_assert(!of_device::propagate_on_container_copy_assignment::value);
static_assert(of_device::propagate_on_container_move_assignment::value);
static_assert(of_device::propagate_on_container_swap::value);
static_assert(!of_device::is_always_equal::value);

// ---- memory ----

struct alignas(512) wide {
  unsigned char bytes[512];
};

// A.2
TEST(thrust_allocators, request_and_free_with_an_alignment_of_at_least_256) {
  logging_resource memory;
  thrust_allocator<char, logging_resource, void*> chars{&memory};
  chars.deallocate(chars.allocate(3), 3);
  thrust_allocator<double, logging_resource> doubles{&memory};
  doubles.deallocate(doubles.allocate(3), 3);
  thrust_allocator<wide> wide_ones{&memory};
  wide_ones.deallocate(wide_ones.allocate(3), 3);
  EXPECT_EQ(memory.allocations, (noted{{3, 256}, {24, 256}, {1536, 512}}));
  EXPECT_EQ(memory.deallocations, memory.allocations);
}

// A.2
TEST(thrust_allocators, reject_more_elements_than_max_size) {
  logging_resource memory;
  thrust_allocator<double> doubles{&memory};
  constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(doubles.max_size(), max_size / 16);
  EXPECT_THROW((void)doubles.allocate(max_size / 16 + 1), std::bad_array_new_length);
  EXPECT_THROW((void)doubles.allocate(max_size), std::bad_array_new_length);
  EXPECT_TRUE(memory.allocations.empty());
}

// ---- stream and resource ----

TEST(thrust_allocators, keep_resource_and_stream_when_rebound_to_other_elements) {
  logging_resource memory;
  const thrust_allocator<int, logging_resource> numbers{&memory, stream_at(8)};
  const thrust_allocator<double, logging_resource> others{numbers};
  EXPECT_EQ(others.resource(), &memory);
  EXPECT_EQ(others.stream(), stream_at(8));
  EXPECT_TRUE(others == numbers);
}

// A.2
TEST(thrust_allocators, use_the_stream_of_their_resource) {
  bound_resource bound{stream_at(16)};
  EXPECT_EQ((thrust_allocator<int, bound_resource>{&bound}.stream()), stream_at(16));
  // Also if only the allocator's type does not name the resource.
  EXPECT_EQ(thrust_allocator<int>{&bound}.stream(), stream_at(16));
  std::pmr::memory_resource& erased = bound;
  EXPECT_EQ(thrust_allocator<int>{&erased}.stream(), nullptr);
  EXPECT_EQ((thrust_allocator<int>{&erased, stream_at(24)}.stream()), stream_at(24));
}

// A.14
TEST(thrust_allocators, are_equal_if_their_resources_are) {
  logging_resource one, twin, other;
  one.twin = &twin;
  twin.twin = &one;
  const of_device a{&one}, of_twin{&twin}, of_other{&other};
  EXPECT_TRUE(a == of_twin);
  EXPECT_FALSE(a != of_twin);
  EXPECT_FALSE(a == of_other);
  EXPECT_TRUE(a != of_other);
  EXPECT_TRUE(a != thrust_allocator<double>{of_other});
  const thrust_allocator<int, logging_resource> concrete{&one}, concrete_other{&other};
  EXPECT_TRUE(concrete == concrete);
  EXPECT_FALSE(concrete == concrete_other);
}

TEST(thrust_allocators, transfer_memory_on_move_assignment_if_equal) {
  logging_resource one, twin;
  one.twin = &twin;
  twin.twin = &one;
  device_vector<int> a(10, 4, &one), b(10, 5, &twin);
  a = std::move(b);
  EXPECT_EQ(a[0], 5);
  EXPECT_EQ(one.deallocations, (noted{{40, 256}}));
  EXPECT_TRUE(twin.deallocations.empty());
}

}  // namespace
}  // namespace tidemark::test
