// SPDX-License-Identifier: Apache-2.0
// Strategy: the faults of Thrust that the adapters work around, or that their users must know. Each test
// shows one fault and fails once a release fixes it. Its comment names the resulting simplification. The
// tests use no type of tidemark, because the faults exist without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <type_traits>
#include <utility>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/mr/allocator.h>
#include <thrust/mr/memory_resource.h>
#include <thrust/version.h>

#include "counted_element.hpp"

namespace tidemark::test {
namespace {

/// A resource of Thrust that knows its blocks, and records its requests.
class recording_source : public thrust::mr::memory_resource<void*> {
 public:
  recording_source() = default;
  recording_source(recording_source const&) = delete;
  recording_source& operator=(recording_source const&) = delete;
  ~recording_source() override {
    for (void* const block : blocks) ::operator delete(block);
  }

  void* do_allocate(std::size_t bytes, std::size_t align) override {
    aligns.push_back(align);
    blocks.push_back(::operator new(bytes));
    return blocks.back();
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override {
    if (std::erase(blocks, block) == 0) ++foreign;
    else ::operator delete(block);
  }

  std::vector<std::size_t> aligns;  ///< that were requested
  std::vector<void*> blocks;        ///< allocated and not deallocated
  std::size_t foreign = 0;          ///< blocks deallocated that were not from here
};

/// A stateful allocator as in the standard; the flags set its propagation.
template <class T, bool OnCopy, bool OnMove>
struct recording_allocator {
  using value_type = T;
  using propagate_on_container_copy_assignment = std::bool_constant<OnCopy>;
  using propagate_on_container_move_assignment = std::bool_constant<OnMove>;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  recording_source* source;

  // The source of allocators without a named source.
  static recording_source& default_source() {
    static recording_source one;
    return one;
  }
  recording_allocator() : source{&default_source()} {}
  recording_allocator(recording_source* from) : source{from} {}  // NOLINT(google-explicit-constructor)
  template <class U>
  recording_allocator(
      recording_allocator<U, OnCopy, OnMove> const& other)  // NOLINT(google-explicit-constructor)
      : source{other.source} {}
  template <class U>
  struct rebind {
    using other = recording_allocator<U, OnCopy, OnMove>;
  };

  T* allocate(std::size_t n) { return static_cast<T*>(source->do_allocate(n * sizeof(T), alignof(T))); }
  void deallocate(T* block, std::size_t n) { source->do_deallocate(block, n * sizeof(T), alignof(T)); }

  friend bool operator==(recording_allocator const& a, recording_allocator const& b) {
    return a.source == b.source;
  }
};

template <class T, bool OnCopy, bool OnMove>
using recording_vector = thrust::host_vector<T, recording_allocator<T, OnCopy, OnMove>>;

class thrust_faults : public ::testing::Test {
 protected:
  void SetUp() override { counted_element::start_anew(); }
  void TearDown() override { counted_element::start_anew(); }

  recording_source one_, other_;
};

// ---- thrust::mr::memory_resource ----

// A.18
// `operator==` asks the right side whether it is equal to itself. Once fixed, `thrust_resource` needs no
// `==`.
TEST_F(thrust_faults, any_two_resources_are_equal) {
  thrust::mr::memory_resource<void*> const &one = one_, &other = other_;
  EXPECT_FALSE(one.is_equal(other));
  EXPECT_TRUE(one == other);
  EXPECT_FALSE(one != other);
}

// The documentation says that it is, but the macro that decides is defined under one name and tested under
// another. Once fixed, `foreign_resource` is of no use for such a resource, which is then one of std::pmr.
TEST_F(thrust_faults, raw_pointer_resource_does_not_derive_from_std_pmr) {
  static_assert(!std::is_base_of_v<std::pmr::memory_resource, thrust::mr::memory_resource<void*>>);
}

// An allocator requests alignof(T), and algorithms that read wide words get such memory from policies.
// Once fixed, `thrust_resource` need not raise the alignment of requests.
TEST_F(thrust_faults, the_requested_alignment_is_that_of_the_elements_alone) {
  using allocator = thrust::mr::allocator<char, recording_source>;
  const thrust::host_vector<char, allocator> letters(100, 'a', allocator{&one_});
  EXPECT_EQ(one_.aligns, std::vector<std::size_t>{1});
}

// `deallocate` is noexcept, but calls a function that may throw, which ends the program. Once fixed,
// `thrust_resource` need not catch a resource's exceptions.
TEST_F(thrust_faults, an_exception_in_deallocate_ends_the_program) {
  static_assert(noexcept(std::declval<thrust::mr::memory_resource<void*>&>().deallocate(nullptr, 1)));
  static_assert(!noexcept(std::declval<thrust::mr::memory_resource<void*>&>().do_deallocate(nullptr, 1, 1)));
  struct throwing_source final : recording_source {
    void do_deallocate(void*, std::size_t, std::size_t) override { throw 1; }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        throwing_source source;
        source.deallocate(source.allocate(1), 1);
      },
      "");
}

// ---- vectors and their allocators ----

// A.18
// Move assignment takes the other's memory whatever the allocators require; an allocator that stays behind
// gets foreign memory. Once fixed, `thrust_allocator` could stay with its container, like
// `std::pmr::polymorphic_allocator`.
TEST_F(thrust_faults, moves_leave_memory_with_a_foreign_allocator) {
  {
    using vector = recording_vector<int, false, false>;
    vector a(3, 1, &one_), b(4, 2, &other_);
    a = std::move(b);
    EXPECT_EQ(a.get_allocator().source, &one_);
    EXPECT_EQ(a.size(), 4u);
  }
  EXPECT_EQ(one_.foreign, 1u);
  EXPECT_EQ(other_.blocks.size(), 1u) << "the block's own resource never gets it";
}

// Copy assignment that propagates an allocator forgets how many elements it has destroyed, and destroys them
// again without memory. Fixed in 3.5. `thrust_allocator` does not propagate on copies, for other reasons too.
TEST_F(thrust_faults, propagating_copy_assignment_destroys_elements_twice) {
  using vector = recording_vector<counted_element, true, true>;
  {
    vector a(3, counted_element{1}, &one_);
    const vector b(2, counted_element{2}, &other_);
    a = b;
    EXPECT_EQ(a.get_allocator().source, &other_);
    EXPECT_EQ(a.size(), 2u);
  }
#if THRUST_VERSION < 300500
  EXPECT_EQ(counted_element::destroyed_unborn(), 3u);
#else
  EXPECT_EQ(counted_element::destroyed_unborn(), 0u);
#endif
  EXPECT_EQ(counted_element::living(), 0u);
}

// `assign(n, value)` beyond the capacity makes a vector of a default-constructed allocator. With
// `thrust_allocator`, which has no default, it does not compile: assign a vector, or clear and resize.
// Once fixed, docs/thrust.md need not say so.
TEST_F(thrust_faults, assigning_n_values_forgets_the_allocator) {
  using vector = recording_vector<int, false, true>;
  recording_source& unnamed = vector::allocator_type::default_source();
  vector numbers(2, 1, &one_);
  numbers.assign(100, 7);
  EXPECT_EQ(numbers.get_allocator().source, &unnamed);
  EXPECT_TRUE(one_.blocks.empty());
}

// No constructor from another kind of vector takes an allocator: with one, the other vector is first copied
// into a vector of a default-constructed allocator. With `thrust_allocator` that does not compile: use the
// constructor from a range. Once fixed, docs/thrust.md need not say so.
TEST_F(thrust_faults, copies_of_another_vector_kind_use_a_default_constructed_allocator) {
  using vector = recording_vector<int, false, true>;
  recording_source& unnamed = vector::allocator_type::default_source();
  unnamed.aligns.clear();
  const thrust::device_vector<int> numbers(10, 3);
  const vector copy(numbers, &one_);
  EXPECT_EQ(copy.get_allocator().source, &one_);
  EXPECT_EQ(unnamed.aligns.size(), 1u);
}

// ---- exceptions ----

// A vector whose elements throw while they are made destroys none that were: whatever these own is lost.
// Their memory is deallocated. Once fixed, elements that throw may own something.
TEST_F(thrust_faults, failed_construction_does_not_destroy_earlier_elements) {
  using vector = recording_vector<counted_element, false, true>;
  counted_element::throw_at(4);
  EXPECT_THROW(vector(10, &one_), counted_element::construction_error);
  EXPECT_EQ(counted_element::living(), 3u);
  EXPECT_TRUE(one_.blocks.empty());
}
TEST_F(thrust_faults, failed_growth_does_not_destroy_the_copied_elements) {
  using vector = recording_vector<counted_element, false, true>;
  vector elements(5, &one_);
  counted_element::throw_at(4);
  EXPECT_THROW(elements.reserve(10), counted_element::construction_error);
  EXPECT_EQ(counted_element::living(), 5u + 3u);
}

// A copy whose elements throw destroys all intended elements, including those never made. Elements with a
// destructor that does something must therefore not throw from a copy. Once fixed, they may.
TEST_F(thrust_faults, throwing_copy_destroys_elements_that_were_never_made) {
  using vector = recording_vector<counted_element, false, true>;
  const vector elements(5, &one_);
  counted_element::throw_at(3);
  EXPECT_THROW(vector{elements}, counted_element::construction_error);
  EXPECT_EQ(counted_element::destroyed_unborn(), 3u);
  EXPECT_EQ(one_.blocks.size(), 1u);
}

}  // namespace
}  // namespace tidemark::test
