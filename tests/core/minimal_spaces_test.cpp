// SPDX-License-Identifier: Apache-2.0
// Strategy: the smallest address space of each kind, written from docs/address_spaces.md alone, under an
// arena that grows, rewinds, trims, is suspended and fails. The test does not compile if an arena needs a
// member that the page lacks.
#include <tidemark/arena/arena.hpp>
#include <tidemark/plan.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "caught.hpp"
#include "contains.hpp"

namespace tidemark {
namespace {

// One range of 64 KiB.
struct one_buffer : committed_ranges {
  static constexpr space_traits traits{};
  byte_range reserve(std::size_t needed, std::size_t) noexcept {
    alignas(16) static std::byte buffer[64 * KiB];
    if (is_reserved || needed > sizeof buffer) return {};
    is_reserved = true;
    return {reinterpret_cast<std::uintptr_t>(buffer), sizeof buffer};
  }
  void release(byte_range) noexcept { is_reserved = false; }
  std::size_t chunk_bytes() const noexcept { return 64 * KiB; }
  std::size_t granularity() const noexcept { return traits.block_alignment; }
  bool is_reserved = false;
};
static_assert(address_space<one_buffer>);
static_assert(!ordered_space<one_buffer> && !reporting_space<one_buffer>);

constexpr std::size_t page = 4 * KiB;

/// Synthetic memory that is committed in pages, with a limited number of pages.
struct paged_memory {
  static constexpr space_traits traits{
      .host_accessible = false, .commits = true, .max_commit_ahead_bytes = 0};
  byte_range reserve(std::size_t needed, std::size_t wanted) noexcept {
    const std::size_t bytes = (std::max(needed, wanted) + page - 1) / page * page;
    return {std::exchange(next, next + bytes), bytes};
  }
  std::size_t commit(byte_range part, std::size_t least) noexcept {
    const std::size_t bytes = part.size <= free_bytes ? part.size : least <= free_bytes ? least : 0;
    free_bytes -= bytes;
    return bytes;
  }
  bool decommit(byte_range part) noexcept {
    free_bytes += part.size;
    return true;
  }
  void release(byte_range) noexcept {}
  std::size_t chunk_bytes() const noexcept { return 1 * MiB; }
  std::size_t granularity() const noexcept { return page; }

  std::uintptr_t next = std::uintptr_t{1} << 40;
  std::size_t free_bytes = 16 * page;
};
static_assert(address_space<paged_memory>);
static_assert(!ordered_space<paged_memory> && !reporting_space<paged_memory>);

/// The same with events, a stream and suspension.
struct streamed_memory : paged_memory {
  static constexpr space_traits traits{
      .host_accessible = false, .commits = true, .has_stream = true, .suspends = true};
  using event_type = int;
  void wait_before_reuse(event_type event) noexcept { waited->push_back(event); }
  int stream() const noexcept { return 7; }
  void suspend() noexcept { suspended = true; }
  void resume() noexcept { suspended = false; }
  bool can_suspend() const noexcept { return true; }
  bool is_suspended() const noexcept { return suspended; }

  std::vector<int>* waited;
  bool suspended = false;
};
static_assert(ordered_space<streamed_memory> && !reporting_space<streamed_memory>);

/// A space that orders and neither has a stream nor is suspended.
struct ordered_buffer : one_buffer {
  using event_type = int;
  void wait_before_reuse(event_type event) noexcept { last = event; }
  int last = 0;
};
static_assert(ordered_space<ordered_buffer>);

/// A space that reports refusals.
struct refusing_memory : paged_memory {
  char const* refusal() const noexcept { return "there are 16 pages"; }
};
static_assert(reporting_space<refusing_memory> && !ordered_space<refusing_memory>);

/// Ranges that begin 16 bytes behind a multiple of 4096.
struct shifted_memory : committed_ranges {
  static constexpr space_traits traits{
      .host_accessible = false, .reserves_at_once = false, .block_alignment = 16};
  byte_range reserve(std::size_t needed, std::size_t) noexcept {
    last_needed = needed;
    ++outstanding;
    return {(std::uintptr_t{1} << 40) + 16, needed};
  }
  void release(byte_range) noexcept { --outstanding; }
  std::size_t chunk_bytes() const noexcept { return 16; }
  std::size_t granularity() const noexcept { return 16; }
  std::size_t last_needed = 0, outstanding = 0;
};
static_assert(address_space<shifted_memory>);

/// These are not address spaces: each lacks one member, or states impossible traits.
struct without_traits : one_buffer {
  static constexpr int traits = 0;
};
struct with_crooked_alignment : one_buffer {
  static constexpr space_traits traits{.block_alignment = 24};
};
struct with_a_coarse_granule : one_buffer {
  static constexpr space_traits traits{.block_alignment = 16, .block_granule = 32};
};
struct that_nobody_may_touch : one_buffer {
  static constexpr space_traits traits{.host_accessible = false, .device_accessible = false};
};
struct that_commits_yes_or_no : one_buffer {
  bool commit(byte_range, std::size_t) noexcept { return true; }
};
struct that_suspends_under_the_host : ordered_buffer {
  static constexpr space_traits traits{.suspends = true};
  void suspend() noexcept {}
  void resume() noexcept {}
  bool can_suspend() const noexcept { return true; }
  bool is_suspended() const noexcept { return false; }
};
struct that_suspends_in_words : ordered_buffer {
  static constexpr space_traits traits{.host_accessible = false, .suspends = true};
};
struct with_a_stream_in_words : ordered_buffer {
  static constexpr space_traits traits{.has_stream = true};
};
static_assert(!address_space<without_traits> && !address_space<with_crooked_alignment>);
static_assert(!address_space<with_a_coarse_granule> && !address_space<that_nobody_may_touch>);
static_assert(!address_space<that_commits_yes_or_no> && !address_space<that_suspends_under_the_host>);
static_assert(!ordered_space<that_suspends_in_words> && !ordered_space<with_a_stream_in_words>);

static_assert(space_traits{}.block_alignment == 16 &&
              space_traits{.host_accessible = false}.block_alignment == 256);
static_assert(!space_traits{}.device_accessible && space_traits{.host_accessible = false}.device_accessible);
static_assert(space_traits{.block_alignment = 64}.block_granule == 64);

template <class Arena>
concept has_stream = requires(Arena& arena) { arena.stream(); };
template <class Arena>
concept has_suspend = requires(Arena& arena) { arena.suspend(); };

TEST(minimal_spaces, serve_an_arena_and_a_plan_from_one_buffer) {
  basic_arena<one_buffer> step{arena_options{}};
  const arena_mark mark = step.mark();
  EXPECT_EQ(step.push_array<int>(100)[99], 0);
  step.rewind(mark);
  EXPECT_NE(step.try_allocate(64 * KiB), nullptr);
  EXPECT_THROW((void)step.allocate(1), out_of_memory);
  step.release();
  basic_planned_arena<one_buffer> planned;
  EXPECT_NE(planned.allocate(100), nullptr);
}

TEST(minimal_spaces, commit_the_needed_bytes_up_to_the_available_bytes) {
  basic_arena<paged_memory> step{arena_options{.commit_step = 4 * page}};
  (void)step.allocate(13 * page);  // a whole step is refused, and the pages that it needs are not
  EXPECT_EQ(step.stats().committed_bytes, 16 * page);
  EXPECT_EQ(step.space().free_bytes, 0u);
  EXPECT_THROW((void)step.allocate(4 * page), out_of_memory);
  step.reset();
  EXPECT_EQ(step.trim(), 16 * page);
  EXPECT_EQ(step.space().free_bytes, 16 * page);
  step.check_invariants();
}

TEST(minimal_spaces, commit_the_minimum_if_a_larger_commit_is_refused) {
  basic_arena<paged_memory> step{arena_options{.commit_step = 12 * page}};
  (void)step.allocate(page);
  (void)step.allocate(12 * page);  // 24 pages are refused
  EXPECT_EQ(step.stats().committed_bytes, 13 * page);
  step.check_invariants();
}

TEST(minimal_spaces, order_reuse_after_events_and_are_suspended) {
  std::vector<int> waited;
  using arena_type = basic_arena<streamed_memory>;
  arena_type step{streamed_memory{{}, &waited}, arena_options{}};
  EXPECT_EQ(step.stream(), 7);
  arena_type::scope scope{step};
  (void)scope.allocate(page);
  scope.end_after(3);
  EXPECT_EQ(waited, std::vector<int>{3});
  step.suspend();
  EXPECT_TRUE(step.is_suspended());
  EXPECT_EQ(step.stats().committed_bytes, 0u);
  EXPECT_GT(step.stats().suspended_bytes, 0u);
  step.resume();
  EXPECT_FALSE(step.is_suspended());
}

TEST(minimal_spaces, order_reuse_without_a_stream) {
  using arena_type = basic_arena<ordered_buffer>;
  arena_type step;
  arena_type::scope scope{step};
  (void)scope.allocate(1);
  scope.end_after(5);
  EXPECT_EQ(step.space().last, 5);
  static_assert(!has_stream<arena_type> && !has_suspend<arena_type>);
  static_assert(has_stream<basic_arena<streamed_memory>> && has_suspend<basic_arena<streamed_memory>>);
}

TEST(minimal_spaces, name_the_refusal_in_the_error) {
  basic_arena<refusing_memory> step;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(17 * page); });
  EXPECT_PRED2(test::contains, error.what(), "there are 16 pages");
}

TEST(minimal_spaces, reserve_extra_bytes_for_alignment_of_an_unaligned_range) {
  basic_arena<shifted_memory> step;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(step.allocate(64, 4096)), (std::uintptr_t{1} << 40) + 4096);
  EXPECT_EQ(step.space().last_needed, 64u + 4096 - 16);
  EXPECT_EQ(step.space().outstanding, 1u);
}

TEST(minimal_spaces, use_an_aligned_first_buffer_for_an_aligned_block) {
  alignas(4096) static std::byte buffer[8 * KiB];
  upstream_arena lines{buffer, sizeof buffer, std::pmr::null_memory_resource()};
  EXPECT_EQ(lines.allocate(6 * KiB, 4096), buffer);
}

}  // namespace
}  // namespace tidemark
