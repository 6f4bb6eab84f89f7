// SPDX-License-Identifier: Apache-2.0
// Strategy: Thrust's vectors of all three kinds, of elements that are bytes and of elements that must be
// constructed, on an arena, with each device system of Thrust. A vector's contents are read back after each
// kind of change. The arenas, and statistics between them and the vector, report its place.
#include "thrust_machine.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <tidemark/telemetry/statistics_resource.hpp>

#include "thrust_elements.hpp"

namespace tidemark::test {
namespace {

template <class T>
struct device_kind {
  using arena_type = machine_arena;
  using vector = device_vector<T>;
};
template <class T>
struct universal_kind {
  using arena_type = shared_arena;
  using vector = universal_vector<T>;
};
template <class T>
struct host_kind {
  using arena_type = staging_arena;
  using vector = host_vector<T>;
};

template <class Kind>
class vectors : public thrust_machine {
 protected:
  using vector = typename Kind::vector;
  using arena_type = typename Kind::arena_type;
  using scope = typename arena_type::scope;

  /// An arena of the memory that vectors of this kind lie in.
  [[nodiscard]] arena_type make_step() {
    if constexpr (std::is_same_v<arena_type, machine_arena>) return this->make_arena();
    else return arena_type{{.reserve = 4 * MiB}};
  }
  [[nodiscard]] static void const* address_of(vector const& elements) {
    return elements.empty() ? nullptr : thrust::raw_pointer_cast(elements.data());
  }
};

using kinds = ::testing::Types<device_kind<int>, device_kind<whole>, universal_kind<int>,
                               universal_kind<whole>, host_kind<int>, host_kind<whole>>;
TYPED_TEST_SUITE(vectors, kinds);

// ---- construction ----

// A.3
TYPED_TEST(vectors, construct_n_elements) {
  auto step = this->make_step();
  const typename TestFixture::vector elements(100, &step);
  EXPECT_EQ(numbers_in(elements), std::vector<int>(100, 0));
  EXPECT_TRUE(step.owns(this->address_of(elements)));
  EXPECT_GE(step.position(), 400u);
  using vector = typename TestFixture::vector;
  EXPECT_EQ(numbers_in(vector(100, 7, &step)), std::vector<int>(100, 7));
  EXPECT_EQ(numbers_in(vector({1, 2, 3}, &step)), numbers_from_to(1, 3));
  const std::vector<typename vector::value_type> numbers{1, 2, 3, 4};  // of the host
  EXPECT_EQ(numbers_in(vector(numbers.begin(), numbers.end(), &step)), numbers_from_to(1, 4));
}

TYPED_TEST(vectors, copy_into_the_same_resource) {
  auto step = this->make_step();
  const typename TestFixture::vector elements({1, 2, 3}, &step);
  const typename TestFixture::vector copy{elements};
  EXPECT_EQ(numbers_in(copy), numbers_from_to(1, 3));
  EXPECT_TRUE(step.owns(this->address_of(copy)));
  EXPECT_NE(this->address_of(copy), this->address_of(elements));
  EXPECT_EQ(copy.get_allocator().resource(), &step);
}

TYPED_TEST(vectors, are_copied_and_moved_to_a_named_resource) {
  auto step = this->make_step();
  auto kept = this->make_step();
  typename TestFixture::vector elements({1, 2, 3}, &step);
  const typename TestFixture::vector copy(elements, &kept);
  EXPECT_TRUE(kept.owns(this->address_of(copy)));
  EXPECT_EQ(numbers_in(copy), numbers_from_to(1, 3));
  const typename TestFixture::vector moved(std::move(elements), &kept);
  EXPECT_TRUE(kept.owns(this->address_of(moved)));
  EXPECT_EQ(numbers_in(moved), numbers_from_to(1, 3));
}

TYPED_TEST(vectors, move_memory_and_leave_an_empty_vector_of_the_same_resource) {
  auto step = this->make_step();
  typename TestFixture::vector elements({1, 2, 3}, &step);
  void const* const before = this->address_of(elements);
  const std::size_t position = step.position();
  const typename TestFixture::vector moved{std::move(elements)};
  EXPECT_EQ(this->address_of(moved), before);
  EXPECT_EQ(step.position(), position);
  EXPECT_EQ(numbers_in(moved), numbers_from_to(1, 3));
  EXPECT_TRUE(elements.empty());  // NOLINT(bugprone-use-after-move): what is left is what is looked at
  elements.push_back(9);
  EXPECT_TRUE(step.owns(this->address_of(elements)));
  EXPECT_EQ(numbers_in(elements), std::vector<int>{9});
}

// ---- assignment and swap ----

// A.3
TYPED_TEST(vectors, keep_their_resource_on_copy_assignment) {
  auto step = this->make_step();
  auto kept = this->make_step();
  typename TestFixture::vector results(2, 5, &kept);
  {
    typename TestFixture::scope scope{step};
    const typename TestFixture::vector elements({1, 2, 3}, &step);
    results = elements;
    EXPECT_EQ(results.get_allocator().resource(), &kept);
    EXPECT_EQ(elements.get_allocator().resource(), &step);
  }
  const typename TestFixture::vector next(1000, 8, &step);  // overwrites the memory of the step
  EXPECT_TRUE(kept.owns(this->address_of(results)));
  EXPECT_EQ(numbers_in(results), numbers_from_to(1, 3));
}

// A.3
TYPED_TEST(vectors, take_the_resource_of_the_source_on_move_assignment) {
  auto step = this->make_step();
  auto other = this->make_step();
  statistics_resource counted_step{&step}, counted_other{&other};
  typename TestFixture::vector results(2, 5, &counted_other);
  typename TestFixture::vector elements({1, 2, 3}, &counted_step);
  void const* const before = this->address_of(elements);
  results = std::move(elements);
  EXPECT_EQ(this->address_of(results), before);
  EXPECT_EQ(results.get_allocator().resource(), &counted_step);
  EXPECT_EQ(numbers_in(results), numbers_from_to(1, 3));
  EXPECT_EQ(counted_other.stats().used_blocks, 0u) << "what was there goes back to where it is from";
  EXPECT_EQ(counted_step.stats().used_blocks, 1u);
  results = typename TestFixture::vector{&counted_other};
  EXPECT_EQ(counted_step.stats().used_blocks, 0u);
}

}  // namespace
}  // namespace tidemark::test
