// SPDX-License-Identifier: Apache-2.0
// Strategy: every interleaving of the operations of two or three threads that claim and release extents,
// while the region grows, runs out or is rewound in between. Extents in use at once never overlap, extents
// reported as fresh were never claimed before, and the invariants hold at the end.
#include <tidemark/team/detail/extent_region.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "interleavings.hpp"

namespace tidemark::detail {
namespace {

using test::explore;
using test::explored;
using test::explored_sync;
using test::program;

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

 private:
  std::size_t pages_;
  std::size_t committed_ = 0;
  std::size_t next_ = 0;
};

using region_type = extent_region<scarce_memory, explored_sync>;

/// A region, and which pages of it are in use or were.
class watched_region {
 public:
  watched_region(std::size_t pages, std::size_t chunk_pages, std::size_t step_pages = 1, bool growable = true)
      : options_{.commit_step = step_pages * page, .growable = growable},
        space_{pages},
        region_{space_, mutex_, options_, chunk_pages * page, buffer_pages * page} {}

  extent claim(std::size_t least, std::size_t wanted) {
    space_refusal refused{};
    const extent claimed = region_.claim(least * page, wanted * page, refused);
    if (claimed.empty()) return claimed;
    test::require(claimed.range.size >= least * page && claimed.range.size <= std::max(least, wanted) * page,
                  "a claim is as large as it may be");
    for (std::size_t i = first_page(claimed.range); i < last_page(claimed.range); ++i) {
      test::require(!in_use_[i], "extents do not overlap");
      const bool is_fresh = reinterpret_cast<std::uintptr_t>(buffer.data()) + i * page >= claimed.touched;
      test::require(!is_fresh || !was_used_[i], "what is fresh was not used before");
      in_use_[i] = was_used_[i] = true;
    }
    return claimed;
  }
  void return_extent(extent claimed) {
    for (std::size_t i = first_page(claimed.range); i < last_page(claimed.range); ++i) in_use_[i] = false;
    region_.return_extent(claimed.range);
  }
  void reclaim_all() {
    region_.begin_rewind();
    for (std::size_t i = 0; i < buffer_pages; ++i) {
      if (in_use_[i])
        region_.return_extent({reinterpret_cast<std::uintptr_t>(buffer.data()) + i * page, page});
      in_use_[i] = false;
    }
    region_.end_rewind();
  }
  region_type& region() { return region_; }
  /// For the end of a program: an invariant that does not hold.
  std::string broken() {
    char const* const formula = region_.broken_invariant();
    if (formula != nullptr) return formula;
    if (region_.claimed_bytes() - region_.free_bytes() != used_pages() * page)
      return "claimed == in use + free";
    return "";
  }
  std::size_t used_pages() const {
    return static_cast<std::size_t>(std::count(in_use_.begin(), in_use_.end(), true));
  }

 private:
  static std::size_t first_page(byte_range range) {
    return (range.begin - reinterpret_cast<std::uintptr_t>(buffer.data())) / page;
  }
  static std::size_t last_page(byte_range range) { return first_page(range) + range.size / page; }

  arena_options options_;
  scarce_memory space_;
  explored_sync::mutex mutex_;
  region_type region_;
  std::vector<bool> in_use_ = std::vector<bool>(buffer_pages);
  std::vector<bool> was_used_ = std::vector<bool>(buffer_pages);
};

/// Pages of memory, of a chunk and of a step, and whether the region may have further chunks.
struct region_sizes {
  std::size_t pages = buffer_pages, chunk_pages = buffer_pages, step_pages = 1;
  bool growable = true;
};
using operations = std::function<void(watched_region&)>;

/// No schedule of the threads breaks a rule, and in the end this many pages are in use; 0: any number.
void expect_no_failure(
    region_sizes sizes, operations before, std::vector<operations> threads, std::size_t used_pages,
    std::size_t least_schedules, test::exploration_options const& how = {},
    std::function<std::string(watched_region&)> after = [](watched_region&) { return ""; }) {
  const auto make = [&] {
    const auto region =
        std::make_shared<watched_region>(sizes.pages, sizes.chunk_pages, sizes.step_pages, sizes.growable);
    if (before) before(*region);
    program made{{}, [=] {
                   if (used_pages != 0 && region->used_pages() != used_pages)
                     return std::string{"another number of pages is in use"};
                   std::string const broken = region->broken();
                   return broken.empty() ? after(*region) : broken;
                 }};
    for (operations const& thread : threads) made.threads.push_back([=] { thread(*region); });
    return made;
  };
  explored const result = explore(make, how);
  EXPECT_EQ(result.failure, "");
  EXPECT_TRUE(result.complete);
  EXPECT_GE(result.schedules, least_schedules);
  ::testing::Test::RecordProperty("schedules", std::to_string(result.schedules));
}

operations claims(std::vector<std::array<std::size_t, 2>> sizes) {
  return [=](watched_region& region) {
    for (auto const& [least, wanted] : sizes) (void)region.claim(least, wanted);
  };
}
void commit_ahead(watched_region& region) { region.return_extent(region.claim(1, 1)); }

// G.3
TEST(extent_region, returns_disjoint_extents_while_it_grows) {
  const operations thread = claims({{1, 1}, {1, 2}});
  expect_no_failure({.step_pages = 2}, nullptr, {thread, thread}, 6, 20);
}

// G.3
TEST(extent_region, returns_disjoint_extents_under_weak_memory_orders) {
  const operations thread = claims({{1, 1}, {1, 1}});
  expect_no_failure({.step_pages = 4}, nullptr, {thread, thread}, 4, 20, {.weak_orders = true});
}

TEST(extent_region, serves_three_threads_from_committed_memory) {
  const operations thread = claims({{2, 2}});
  expect_no_failure({.step_pages = 16}, commit_ahead, {thread, thread, thread}, 6, 50);
}

TEST(extent_region, chains_chunks_while_threads_claim) {
  const operations thread = claims({{2, 2}, {3, 3}});
  expect_no_failure({.chunk_pages = 4, .step_pages = 2}, nullptr, {thread, thread}, 10, 20);
}

TEST(extent_region, reuses_returned_extents_while_other_threads_claim) {
  const operations borrower = [](watched_region& region) {
    const extent first = region.claim(1, 1);
    const extent second = region.claim(1, 1);
    region.return_extent(first);
    region.return_extent(second);
  };
  expect_no_failure({.step_pages = 8}, commit_ahead, {borrower, claims({{1, 1}, {2, 2}})}, 3, 50);
}

// G.3
TEST(extent_region, marks_no_returned_page_as_fresh_under_weak_memory_orders) {
  const operations before = [](watched_region& region) {
    commit_ahead(region);
    (void)region.claim(2, 2);
  };
  expect_no_failure({.step_pages = 8}, before, {commit_ahead, claims({{2, 2}})}, 4, 20,
                    {.weak_orders = true});
}

TEST(extent_region, rejects_one_thread_and_serves_the_other) {
  const operations large = [](watched_region& region) {
    test::require(region.claim(5, 5).empty(), "there is no memory for it");
  };
  const operations small = [](watched_region& region) {
    for (int i = 0; i < 2; ++i) test::require(!region.claim(1, 2).empty(), "there is memory for it");
  };
  expect_no_failure({.pages = 4}, nullptr, {large, small}, 0, 5);
}

TEST(extent_region, serves_the_next_step_from_committed_memory_after_a_reset) {
  const operations thread = claims({{1, 2}, {1, 2}});
  const auto next_step = [](watched_region& region) {
    region.reclaim_all();
    if (std::string formula = region.broken(); !formula.empty()) return formula;
    if (region.region().claimed_bytes() != 0) return std::string{"all was taken back"};
    return std::string{region.claim(8, 8).empty() ? "the next step has all of it" : ""};
  };
  expect_no_failure({.pages = 8, .chunk_pages = 8, .growable = false}, nullptr, {thread, thread}, 0, 20, {},
                    next_step);
}

}  // namespace
}  // namespace tidemark::detail
