// SPDX-License-Identifier: Apache-2.0
// If a source refuses a wanted size, the size is halved down to the needed size. A resource can thus use nearly
// all memory of a source. Sources of given sizes represent systems and devices.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <vector>

#include <tidemark/compat.hpp>
#include <tidemark/tidemark.hpp>

#include "calling_upstream.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

// ---- reserve_by_halves

TEST(reserve_by_halves, tries_the_wanted_size_and_halves_down_to_the_needed_one) {
  std::vector<std::size_t> tried;
  const auto refuse = [&](std::size_t bytes) { return tried.push_back(bytes), byte_range{}; };
  EXPECT_TRUE(detail::reserve_by_halves(100, 1000, refuse).empty());
  EXPECT_EQ(tried, (std::vector<std::size_t>{1000, 500, 250, 125, 100}));
  tried.clear();
  EXPECT_TRUE(detail::reserve_by_halves(100, 7, refuse).empty());
  EXPECT_EQ(tried, (std::vector<std::size_t>{100})) << "a wanted size below the need";
}

TEST(reserve_by_halves, stops_at_the_first_size_that_is_served) {
  for (std::size_t room = 1; room <= 2000; ++room) {
    const byte_range range = detail::reserve_by_halves(
        10, 1600, [=](std::size_t bytes) { return bytes <= room ? byte_range{64, bytes} : byte_range{}; });
    EXPECT_EQ(range.empty(), room < 10);
    if (room < 10) continue;
    EXPECT_LE(range.size, room);
    EXPECT_GT(range.size * 2 + 1, std::min<std::size_t>(room, 1600)) << room;
  }
}

TEST(reserve_by_halves, tries_at_most_its_share_or_the_needed_size_after_a_refusal) {
  std::vector<std::size_t> tried;
  int asked = 0;
  const auto refuse = [&](std::size_t bytes) { return tried.push_back(bytes), byte_range{}; };
  EXPECT_TRUE(
      detail::reserve_by_halves(100, 1000, refuse, [&] { return ++asked, std::size_t{130}; }).empty());
  EXPECT_EQ(tried, (std::vector<std::size_t>{1000, 125, 100}));
  EXPECT_EQ(asked, 1);
}

// ---- virtual_memory

// A system with room for this many bytes in one range.
class small_system final : public recording_os {
 public:
  std::size_t room = 0, slack = 0;

  void* reserve(std::size_t bytes, std::size_t align) noexcept override {
    if (bytes + (align > page_size() ? slack : 0) > room) return nullptr;
    return recording_os::reserve(bytes, align);
  }
};

TEST(virtual_memory, halves_a_refused_reservation_down_to_the_minimum) {
  small_system os;
  virtual_memory space{{}, os};
  for (auto const& [room, least, expected] :
       std::vector<std::array<std::size_t, 3>>{{2 * GiB, 1, 1 * GiB},
                                               {100 * MiB, 1, 64 * MiB},
                                               {100 * MiB, 70 * MiB, 70 * MiB},
                                               {3 * MiB, 1, 2 * MiB},
                                               {64 * KiB, 1, 64 * KiB},
                                               {4 * KiB, 1, 4 * KiB},
                                               {4 * KiB - 1, 1, 0},
                                               {64 * MiB, 65 * MiB, 0}}) {
    os.room = room;
    const byte_range range = space.reserve(least, 1 * GiB);
    EXPECT_EQ(range.size, expected) << room << ' ' << least;
    EXPECT_STREQ(space.refusal(), "") << "the system does not say why";
    if (!range.empty()) space.release(range);
  }
}

TEST(virtual_memory, skips_range_alignment_if_the_address_space_is_too_small) {
  small_system os;
  os.slack = 2 * MiB;
  virtual_memory space{{}, os};
  os.room = 1 * MiB;
  byte_range range = space.reserve(1, 1 * GiB);
  EXPECT_EQ(range.size, 1 * MiB);
  space.release(range);
  os.room = 5 * MiB;
  range = space.reserve(5 * MiB, 5 * MiB);
  EXPECT_EQ(range.size, 5 * MiB);
  space.release(range);
  virtual_memory huge{{.huge_pages = huge_page_policy::advise}, os};
  os.room = 3 * MiB;
  EXPECT_TRUE(huge.reserve(1, 1 * GiB).empty()) << "whose pages need it";
}

// ---- upstreams

// Bytes that a resource serves in blocks of one size before it throws.
std::size_t served_by(std::pmr::memory_resource& memory, std::size_t block_bytes) {
  for (std::size_t served = 0;; served += block_bytes) {
    try {
      (void)memory.allocate(block_bytes, 8);
    } catch (std::bad_alloc const&) {
      return served;
    }
  }
}

TEST(upstream_device_arena, uses_95_percent_of_a_device) {
  for (const std::size_t gib : {16u, 24u, 40u, 80u, 141u}) {
    for (const std::size_t mib : {1u, 3u, 10u, 33u, 64u, 100u, 128u}) {
      made_up_memory addresses;
      limit_resource device{&addresses, gib * GiB};
      upstream_device_arena memory{&device};
      EXPECT_GE(served_by(memory, mib * MiB), device.limit_bytes() / 100 * 95)
          << gib << " GiB in blocks of " << mib;
    }
  }
}

template <class Resource>
class wanted_sizes : public testing::Test {};
using on_upstreams = testing::Types<upstream_arena, pool, synchronized_pool,
                                    compat::unsynchronized_pool_resource, compat::synchronized_pool_resource>;
TYPED_TEST_SUITE(wanted_sizes, on_upstreams, );

TYPED_TEST(wanted_sizes, use_90_percent_of_an_upstream) {
  for (const std::size_t kib : {300u, 1000u, 7000u, 30'000u}) {
    for (const std::size_t block : {16u, 1000u, 5000u}) {
      limit_resource upstream{std::pmr::new_delete_resource(), kib * KiB};
      TypeParam memory{&upstream};
      EXPECT_GE(served_by(memory, block), kib * KiB / 100 * 90) << kib << " KiB in blocks of " << block;
      memory.release();
    }
  }
}

TYPED_TEST(wanted_sizes, fall_back_to_the_block_if_the_upstream_has_little_more) {
  for (const std::size_t block : {16u, 100u, 1000u, 10'000u, 100'000u, 1'000'000u}) {
    limit_resource upstream{std::pmr::new_delete_resource(), block + block / 4 + 2 * KiB};
    TypeParam memory{&upstream};
    EXPECT_GE(served_by(memory, block), block) << block;
    memory.release();
  }
}

TYPED_TEST(wanted_sizes, are_tried_a_few_times_only) {
  limit_resource upstream{std::pmr::new_delete_resource(), 20 * MiB};
  TypeParam memory{&upstream};
  (void)served_by(memory, 1000);
  const auto calls = [&] { return upstream.stats().allocations + upstream.stats().refused; };
  const std::uint64_t before = calls();
  EXPECT_THROW((void)memory.allocate(1000, 8), std::bad_alloc);
  EXPECT_LE(calls() - before, 40u);
  memory.release();
}

struct broken_upstream_error {};
TYPED_TEST(wanted_sizes, are_not_halved_if_the_upstream_throws_another_error) {
  calling_upstream upstream;
  int calls = 0;
  upstream.on_allocate = [&] {
    ++calls;
    throw broken_upstream_error{};
  };
  TypeParam memory{&upstream};
  EXPECT_THROW((void)memory.allocate(100, 8), broken_upstream_error);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tidemark::test
