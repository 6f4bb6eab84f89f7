// SPDX-License-Identifier: Apache-2.0
// Strategy: every operation that makes elements or requests memory runs once for each construction in it,
// which throws, and once for each allocation in it, which is refused. No memory may be lost. A vector that
// moves to larger memory stays unchanged. Thrust then destroys the wrong elements: see
// thrust_faults_test.cpp.
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/telemetry.hpp>
#include <tidemark/thrust.hpp>

#include "counted_element.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

template <class Vector>
class vector_failures : public ::testing::Test {
 protected:
  using element = typename Vector::value_type;

  void SetUp() override { counted_element::start_anew(); }
  void TearDown() override { counted_element::start_anew(); }

  /// `body(memory, arm)` calls `arm` at the point from which constructions count.
  template <class Body>
  static void fail_each_construction(Body body) {
    int failures = 0;
    for (int n = 1; n < 1000; ++n) {
      counted_element::start_anew();
      statistics_resource memory;
      bool failed = false;
      try {
        body(memory, [n] { counted_element::throw_at(n); });
      } catch (counted_element::construction_error const&) {
        failed = true;
        ++failures;
      }
      EXPECT_EQ(memory.stats().used_blocks, 0u) << "construction " << n << " has failed";
      EXPECT_GE(memory.stats().allocations, 1u);
      if (!failed) break;
    }
    EXPECT_GE(failures, 1);
  }

  static std::vector<int> values_of(Vector const& elements) {
    std::vector<int> values;
    if (elements.empty()) return values;
    auto const* const first = thrust::raw_pointer_cast(elements.data());
    for (std::size_t i = 0; i < elements.size(); ++i) values.push_back(first[i].value());
    return values;
  }

  /// The same for an operation on a vector of 1, 2, 3. A failed operation must not change the vector.
  template <class Change>
  static void fail_each_construction_of(Change change) {
    fail_each_construction([&](auto& memory, auto arm) {
      Vector elements({1, 2, 3}, &memory);
      elements.shrink_to_fit();
      element const* const before = thrust::raw_pointer_cast(elements.data());
      arm();
      try {
        change(elements);
      } catch (...) {
        counted_element::throw_at(0);
        EXPECT_EQ(values_of(elements), (std::vector<int>{1, 2, 3}));
        EXPECT_EQ(thrust::raw_pointer_cast(elements.data()), before);
        throw;
      }
    });
  }
};

using kinds = ::testing::Types<device_vector<counted_element>, universal_vector<counted_element>,
                               host_vector<counted_element>>;
TYPED_TEST_SUITE(vector_failures, kinds);

// ---- constructors of elements ----

// A.13
TYPED_TEST(vector_failures, in_construction_lose_no_memory) {
  const std::vector<counted_element> numbers(4);
  const counted_element value{7};
  this->fail_each_construction([](auto& memory, auto arm) {
    arm();
    const TypeParam elements(4, &memory);
  });
  this->fail_each_construction([&](auto& memory, auto arm) {
    arm();
    const TypeParam elements(4, value, &memory);
  });
  this->fail_each_construction([&](auto& memory, auto arm) {
    arm();
    const TypeParam elements(numbers.begin(), numbers.end(), &memory);
  });
  this->fail_each_construction([&](auto& memory, auto arm) {
    const TypeParam elements(4, &memory);
    arm();
    const TypeParam copy{elements};
  });
}

// A.13
TYPED_TEST(vector_failures, in_growth_leave_the_vector_unchanged) {
  const counted_element value{7};
  this->fail_each_construction_of([](auto& elements) { elements.reserve(10); });
  this->fail_each_construction_of([](auto& elements) { elements.resize(10); });
  this->fail_each_construction_of([&](auto& elements) { elements.resize(10, value); });
  this->fail_each_construction_of([&](auto& elements) { elements.push_back(value); });
  this->fail_each_construction_of([&](auto& elements) { elements.insert(elements.begin() + 1, value); });
  this->fail_each_construction_of([&](auto& elements) {
    const std::vector<counted_element> more(5);
    elements.insert(elements.begin() + 1, more.begin(), more.end());
  });
}

TYPED_TEST(vector_failures, do_not_occur_in_moves_and_swaps) {
  statistics_resource memory;
  {
    TypeParam elements({1, 2, 3}, &memory), other(2, &memory);
    counted_element::throw_at(1);
    TypeParam moved{std::move(elements)};
    other = std::move(moved);
    moved.swap(other);
    EXPECT_EQ(this->values_of(moved), (std::vector<int>{1, 2, 3}));
  }
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(counted_element::living(), 0u);
  EXPECT_EQ(counted_element::destroyed_unborn(), 0u);
}

// ---- refusals of memory ----

TYPED_TEST(vector_failures, in_allocation_leave_vectors_unchanged_and_lose_no_memory) {
  const violation_recorder violations;
  test_resource memory;
  const counted_element value{7};
  const std::size_t failures = fail_each_allocation(memory, [&] {
    TypeParam elements({1, 2, 3}, &memory);
    TypeParam copy{elements};
    const auto or_unchanged = [&](auto change) {
      const std::vector<int> before = this->values_of(copy);
      try {
        change();
      } catch (std::bad_alloc const&) {
        EXPECT_EQ(this->values_of(copy), before);
        throw;
      }
    };
    or_unchanged([&] { copy.reserve(10); });
    or_unchanged([&] { copy.resize(20); });
    or_unchanged([&] { copy.insert(copy.begin(), 100, value); });
    or_unchanged([&] { copy.shrink_to_fit(); });
    or_unchanged([&] { elements = copy; });
    or_unchanged([&] { copy = std::move(elements); });
    EXPECT_EQ(copy.size(), 120u);
  });
  EXPECT_GE(failures, 7u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  EXPECT_EQ(counted_element::living(), 1u) << "only the value is left";
  EXPECT_EQ(counted_element::destroyed_unborn(), 0u);
}

}  // namespace
}  // namespace tidemark::test
