// SPDX-License-Identifier: Apache-2.0
// Strategy: our class inherits the functions and constructors of the standard library's class. The tests
// therefore cover its constructors and one rule of each kind, on both classes.
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory_resource>
#include <type_traits>

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

// D.3
TYPED_TEST(standard_monotonic, serves_a_buffer_to_its_last_byte) {
  std::array<std::byte, 11> bytes;
  TypeParam resource{bytes.data() + 1, 10, std::pmr::null_memory_resource()};
  EXPECT_EQ(resource.allocate(7, 1), bytes.data() + 1);
  EXPECT_EQ(resource.allocate(3, 1), bytes.data() + 8);
  EXPECT_THROW((void)resource.allocate(1, 1), std::bad_alloc);
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

// D.3
TYPED_TEST(standard_monotonic, release_returns_all_chunks) {
  TypeParam resource{&this->upstream_};
  for (std::size_t i = 0; i < 200; ++i) (void)resource.allocate(i * 50, std::size_t{1} << i % 9);
  resource.release();
  EXPECT_TRUE(this->upstream_.held.empty());
  resource.release();
  EXPECT_NE(resource.allocate(1), nullptr);
}

}  // namespace
}  // namespace tidemark::test
