// SPDX-License-Identifier: Apache-2.0
// Strategy: random claims and returns of extents, while the region grows, runs out or is rewound in between.
// Extents in use at once never overlap, extents reported as fresh were never claimed before, and the
// invariants hold. Threads that claim at once are in shared_arena_model_test.cpp.
#include <tidemark/team/detail/extent_region.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "choices.hpp"

namespace tidemark::detail {
namespace {

constexpr std::size_t page = 4 * KiB;
constexpr std::size_t buffer_pages = 64;
alignas(page) std::array<std::byte, buffer_pages * page> buffer;  // addresses that are the same in each run

/// Returns parts of the buffer, and memory for `pages` pages.
class scarce_memory {
 public:
  static constexpr space_traits traits{.fresh_is_zero = true, .commits = true};

  explicit scarce_memory(std::size_t pages) : pages_{pages} {}

  byte_range reserve(std::size_t least, std::size_t wanted) {
    const std::size_t bytes = std::max(align_up(least, page), wanted);
    if (next_ + bytes > buffer.size()) return {};
    const byte_range range{reinterpret_cast<std::uintptr_t>(buffer.data()) + next_, bytes};
    next_ += bytes;
    return range;
  }
  std::size_t commit(byte_range part, std::size_t least) noexcept {
    const std::size_t free = (pages_ - committed_) * page;
    const std::size_t bytes = part.size <= free ? part.size : least <= free ? least : 0;
    committed_ += bytes / page;
    std::fill_n(was_used.begin() + (part.begin - reinterpret_cast<std::uintptr_t>(buffer.data())) / page,
                bytes / page, false);
    return bytes;
  }
  bool decommit(byte_range part) noexcept {
    committed_ -= part.size / page;
    return true;
  }
  void release(byte_range range) noexcept {
    if (range.end() == reinterpret_cast<std::uintptr_t>(buffer.data()) + next_) next_ -= range.size;
  }
  static std::size_t chunk_bytes() noexcept { return buffer.size(); }
  static std::size_t granularity() noexcept { return page; }

  std::array<bool, buffer_pages> was_used{};  // since the commit

 private:
  std::size_t pages_;
  std::size_t committed_ = 0;
  std::size_t next_ = 0;
};

using region_type = extent_region<scarce_memory>;

/// A region, and which pages of it are in use or were.
class watched_region {
 public:
  watched_region(std::size_t pages, std::size_t chunk_pages, bool growable = true)
      : space_{pages},
        region_{space_, mutex_,
                arena_options{.reserve = chunk_pages * page,
                              .commit_step = page,
                              .growable = growable,
                              .retain = buffer_pages * page}} {}

  byte_range claim(std::size_t least, std::size_t wanted) {
    space_refusal refused{};
    std::uintptr_t touched = 0;
    const byte_range claimed = region_.claim(least * page, wanted * page, touched, refused);
    if (claimed.empty()) return {};
    EXPECT_GE(claimed.size, least * page);
    EXPECT_LE(claimed.size, std::max(least, wanted) * page);
    for (std::size_t i = first_page(claimed); i < last_page(claimed); ++i) {
      EXPECT_FALSE(in_use_[i]) << "extents do not overlap";
      const bool is_fresh = reinterpret_cast<std::uintptr_t>(buffer.data()) + i * page >= touched;
      EXPECT_FALSE(is_fresh && space_.was_used[i]) << "fresh pages were not used before";
      in_use_[i] = space_.was_used[i] = true;
    }
    return claimed;
  }
  void return_extent(byte_range claimed) {
    for (std::size_t i = first_page(claimed); i < last_page(claimed); ++i) in_use_[i] = false;
    region_.return_extent(claimed);
  }
  region_type& region() { return region_; }
  void check() {
    EXPECT_EQ(region_.broken_invariant(), nullptr);
    const auto used = static_cast<std::size_t>(std::ranges::count(in_use_, true));
    EXPECT_EQ(region_.claimed_bytes() - region_.free_bytes(), used * page) << "claimed == in use + free";
  }

 private:
  static std::size_t first_page(byte_range range) {
    return (range.begin - reinterpret_cast<std::uintptr_t>(buffer.data())) / page;
  }
  static std::size_t last_page(byte_range range) { return first_page(range) + range.size / page; }

  scarce_memory space_;
  fork_safe<> mutex_;
  region_type region_;
  std::array<bool, buffer_pages> in_use_{};
};

struct extent_region_sizes : ::testing::TestWithParam<std::size_t> {};

// G.3
TEST_P(extent_region_sizes, returns_disjoint_extents_while_it_grows_and_takes_extents_back) {
  watched_region region{48, GetParam()};
  test::choices random{GetParam()};
  std::vector<byte_range> extents;
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t least = 1 + random() % 4;
    switch (random() % 8) {
      case 0:
        region.region().begin_rewind();
        for (; extents.size() > random() % 3; extents.pop_back()) region.return_extent(extents.back());
        region.region().end_rewind();
        break;
      case 1:
        (void)region.region().trim(random() % 8 * page);
        break;
      case 2:
      case 3:
      case 4:
        if (extents.empty()) break;
        std::swap(extents[random() % extents.size()], extents.back());
        region.return_extent(extents.back());
        extents.pop_back();
        break;
      default:
        if (const byte_range claimed = region.claim(least, random() % 8); !claimed.empty())
          extents.push_back(claimed);
    }
    region.check();
  }
  for (byte_range const& each : extents) region.return_extent(each);
  region.check();
  EXPECT_EQ(region.region().claimed_bytes(), 0u);
  EXPECT_EQ(region.region().free_bytes(), 0u);
}
INSTANTIATE_TEST_SUITE_P(chunk_pages, extent_region_sizes, ::testing::Values(4, 7, buffer_pages));

// G.3
TEST(extent_region, rejects_a_claim_without_memory_and_serves_a_smaller_one) {
  watched_region region{4, buffer_pages};
  EXPECT_TRUE(region.claim(5, 5).empty());
  EXPECT_EQ(region.claim(1, 2).size, 2 * page);
  EXPECT_EQ(region.claim(1, 8).size, 2 * page);
  EXPECT_TRUE(region.claim(1, 1).empty());
  region.check();
}

TEST(extent_region, serves_the_next_step_from_committed_memory_after_a_reset) {
  watched_region region{8, 8, false};
  std::array<byte_range, 4> extents;
  for (byte_range& each : extents) each = region.claim(1, 2);
  EXPECT_TRUE(region.claim(1, 1).empty());
  region.region().begin_rewind();
  for (byte_range const& each : extents) region.return_extent(each);
  region.region().end_rewind();
  EXPECT_EQ(region.region().claimed_bytes(), 0u);
  EXPECT_EQ(region.claim(8, 8).size, 8 * page);
}

}  // namespace
}  // namespace tidemark::detail
