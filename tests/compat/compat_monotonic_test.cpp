// SPDX-License-Identifier: Apache-2.0
// Strategy: the rules of [mem.res.monotonic.buffer], each a test that runs over the standard library's class
// and over ours, which is derived from it.
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <type_traits>
#include <vector>

#include <tidemark/compat.hpp>

#include "logged_upstream.hpp"

namespace tidemark::test {
namespace {

template <class Resource>
class standard_monotonic : public ::testing::Test {
 protected:
  logged_upstream upstream_;
};

using both = ::testing::Types<std::pmr::monotonic_buffer_resource, compat::monotonic_buffer_resource>;
TYPED_TEST_SUITE(standard_monotonic, both, );

// An initializer list in place of an argument is a conversion: it takes a constructor that is not explicit.
template <class T>
void convert(T const&) {}

template <class T>
constexpr bool has_the_standards_interface =
    std::derived_from<T, std::pmr::memory_resource> && !std::is_final_v<T> &&
    std::has_virtual_destructor_v<T> && !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    !std::is_move_constructible_v<T> && std::default_initializable<T> &&
    std::constructible_from<T, std::pmr::memory_resource*> && std::constructible_from<T, std::size_t> &&
    !std::convertible_to<std::pmr::memory_resource*, T> && !std::convertible_to<std::size_t, T> &&
    requires(void* buffer, std::size_t bytes, std::pmr::memory_resource* upstream, T& t, T const& constant) {
      convert<T>({});
      convert<T>({bytes, upstream});
      convert<T>({buffer, bytes});
      convert<T>({buffer, bytes, upstream});
      { t.release() } -> std::same_as<void>;
      { constant.upstream_resource() } -> std::same_as<std::pmr::memory_resource*>;
    };
static_assert(has_the_standards_interface<std::pmr::monotonic_buffer_resource>);
static_assert(has_the_standards_interface<compat::monotonic_buffer_resource>);

TYPED_TEST(standard_monotonic, construction_allocates_nothing) {
  std::array<std::byte, 64> buffer;
  const TypeParam of_upstream{&this->upstream_};
  const TypeParam sized{1000, &this->upstream_};
  const TypeParam buffered{buffer.data(), buffer.size(), &this->upstream_};
  EXPECT_TRUE(this->upstream_.asked.empty());
}

// D.3
TYPED_TEST(standard_monotonic, serves_a_buffer_to_its_last_byte) {
  std::array<std::byte, 11> bytes;
  TypeParam resource{bytes.data() + 1, 10, std::pmr::null_memory_resource()};
  EXPECT_EQ(resource.allocate(7, 1), bytes.data() + 1);
  EXPECT_EQ(resource.allocate(3, 1), bytes.data() + 8);
  EXPECT_THROW((void)resource.allocate(1, 1), std::bad_alloc);
}

TYPED_TEST(standard_monotonic, serves_a_block_of_the_size_of_the_buffer) {
  for (const std::size_t bytes : {1u, 10u, 42u, 128u, 4096u}) {
    std::vector<std::byte> buffer(bytes);
    TypeParam resource{buffer.data(), bytes, std::pmr::null_memory_resource()};
    EXPECT_EQ(resource.allocate(bytes, 1), buffer.data());
  }
}

TYPED_TEST(standard_monotonic, packs_blocks_of_alignment_1_without_gaps) {
  alignas(16) std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), std::pmr::null_memory_resource()};
  for (std::size_t i = 0; i < buffer.size(); ++i) EXPECT_EQ(resource.allocate(1, 1), buffer.data() + i);
}

TYPED_TEST(standard_monotonic, leaves_no_more_between_blocks_than_the_alignment_needs) {
  alignas(64) std::array<std::byte, 128> buffer;
  TypeParam resource{buffer.data() + 1, buffer.size() - 1, std::pmr::null_memory_resource()};
  for (const std::size_t align : {1u, 2u, 4u, 8u, 16u, 32u}) {
    EXPECT_EQ(resource.allocate(1, align), buffer.data() + align) << align;
  }
}

// D.3
TYPED_TEST(standard_monotonic, calls_the_upstream_once_when_the_buffer_is_full) {
  std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), &this->upstream_};
  (void)resource.allocate(60, 1);
  EXPECT_TRUE(this->upstream_.asked.empty());
  (void)resource.allocate(5, 1);
  ASSERT_EQ(this->upstream_.asked.size(), 1u);
  EXPECT_GT(this->upstream_.asked[0].bytes, buffer.size());
}

TYPED_TEST(standard_monotonic, takes_a_first_chunk_of_the_given_size) {
  for (const std::size_t bytes : {1u, 100u, 4096u, 100'000u}) {
    logged_upstream upstream;
    TypeParam resource{bytes, &upstream};
    (void)resource.allocate(1, 1);
    (void)resource.allocate(bytes - 1, 1);
    ASSERT_EQ(upstream.asked.size(), 1u) << bytes;
    EXPECT_GE(upstream.asked[0].bytes, bytes);
  }
}

TYPED_TEST(standard_monotonic, upstream_request_has_at_least_the_requested_size_and_alignment) {
  for (const std::size_t bytes : {32u, 64u, 256u, 4096u, 65'536u}) {
    logged_upstream upstream;
    TypeParam resource{&upstream};
    void* const block = resource.allocate(bytes, bytes);
    ASSERT_EQ(upstream.asked.size(), 1u);
    EXPECT_EQ(block, upstream.asked[0].first);
    EXPECT_GE(upstream.asked[0].bytes, bytes);
    EXPECT_GE(upstream.asked[0].align, bytes);
  }
}

TYPED_TEST(standard_monotonic, an_over_aligned_request_does_not_make_later_chunks_over_aligned) {
  TypeParam resource{&this->upstream_};
  (void)resource.allocate(2048, 1024);
  while (this->upstream_.asked.size() < 2) (void)resource.allocate(64, 4);
  EXPECT_LE(this->upstream_.asked[1].align, alignof(std::max_align_t));
}

TYPED_TEST(standard_monotonic, chunks_grow_geometrically) {
  TypeParam resource{64, &this->upstream_};
  constexpr std::size_t chunks = 20;
  while (this->upstream_.asked.size() < chunks) (void)resource.allocate(32, 1);
  // By a quarter each, were it less than a half, so that records and roundings do not count.
  for (std::size_t i = 4; i < chunks; ++i) {
    EXPECT_GT(this->upstream_.asked[i].bytes * 4, this->upstream_.asked[i - 1].bytes * 5) << i;
  }
}

TYPED_TEST(standard_monotonic, deallocate_makes_no_memory_reusable) {
  std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), std::pmr::null_memory_resource()};
  void* const block = resource.allocate(40, 1);
  resource.deallocate(block, 40, 1);
  EXPECT_THROW((void)resource.allocate(40, 1), std::bad_alloc);
}

TYPED_TEST(standard_monotonic, deallocate_returns_nothing_to_the_upstream) {
  TypeParam resource{&this->upstream_};
  for (std::size_t i = 1; i < 200; ++i) resource.deallocate(resource.allocate(i * 50), i * 50);
  EXPECT_EQ(this->upstream_.held.size(), this->upstream_.asked.size());
}

// D.3
TYPED_TEST(standard_monotonic, release_returns_all_chunks) {
  TypeParam resource{&this->upstream_};
  for (std::size_t i = 0; i < 200; ++i) (void)resource.allocate(i * 50, std::size_t{1} << i % 9);
  resource.release();
  EXPECT_TRUE(this->upstream_.held.empty());
  resource.release();
  EXPECT_NE(resource.allocate(1), nullptr);
}

TYPED_TEST(standard_monotonic, release_returns_to_the_buffer) {
  std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), &this->upstream_};
  EXPECT_EQ(resource.allocate(60, 1), buffer.data());
  EXPECT_NE(resource.allocate(60, 1), nullptr);
  resource.release();
  EXPECT_EQ(resource.allocate(64, 1), buffer.data());
}

TYPED_TEST(standard_monotonic, release_returns_to_the_first_size) {
  TypeParam resource{100, &this->upstream_};
  const auto run = [&] {
    const std::size_t before = this->upstream_.asked.size();
    for (int i = 0; i < 1000; ++i) (void)resource.allocate(7, 1);
    std::vector<std::size_t> sizes;
    for (std::size_t i = before; i < this->upstream_.asked.size(); ++i) {
      sizes.push_back(this->upstream_.asked[i].bytes);
    }
    resource.release();
    return sizes;
  };
  const std::vector<std::size_t> first = run();
  EXPECT_GT(first.size(), 2u);
  EXPECT_EQ(run(), first);
}

TYPED_TEST(standard_monotonic, upstream_exception_passes_through_and_changes_nothing) {
  std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), &this->upstream_};
  (void)resource.allocate(16, 1);
  this->upstream_.refuses = true;
  EXPECT_THROW((void)resource.allocate(49, 1), upstream_refused);
  EXPECT_EQ(resource.allocate(48, 1), buffer.data() + 16);
  EXPECT_THROW((void)resource.allocate(1, 1), upstream_refused);
  this->upstream_.refuses = false;
  EXPECT_NE(resource.allocate(1, 1), nullptr);
  EXPECT_EQ(this->upstream_.asked.size(), 1u);
}

TYPED_TEST(standard_monotonic, blocks_of_0_bytes_are_distinct) {
  std::array<std::byte, 64> buffer;
  TypeParam resource{buffer.data(), buffer.size(), &this->upstream_};
  void* const block = resource.allocate(0, 1);
  EXPECT_NE(block, nullptr);
  EXPECT_NE(resource.allocate(0, 1), block);
}

TYPED_TEST(standard_monotonic, treats_a_buffer_of_0_bytes_like_no_buffer) {
  std::byte buffer{};
  TypeParam resource{&buffer, 0, &this->upstream_};
  EXPECT_NE(resource.allocate(1, 1), &buffer);
  EXPECT_EQ(this->upstream_.asked.size(), 1u);
  TypeParam of_null{nullptr, 0, &this->upstream_};
  EXPECT_NE(of_null.allocate(1, 1), nullptr);
}

TYPED_TEST(standard_monotonic, can_be_derived_from) {
  counted<TypeParam> resource{100, &this->upstream_};
  {
    std::pmr::vector<int> numbers{&resource};
    for (int i = 0; i < 100; ++i) numbers.push_back(i);
  }
  EXPECT_GT(resource.allocations, 1u);
  EXPECT_EQ(resource.deallocations, resource.allocations);
  EXPECT_TRUE(resource == resource);
}

}  // namespace
}  // namespace tidemark::test
