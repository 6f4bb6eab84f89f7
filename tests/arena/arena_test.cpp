// SPDX-License-Identifier: Apache-2.0
// Strategy: one fact of `arena` per test, on small reservations so that chunks are crossed at once. A
// recording_os replaces the operating system and counts its calls if they matter.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <map>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "process_memory.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t page = 4 * KiB;
constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();

std::uintptr_t address(void const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool all_bytes_are(void const* first, std::size_t bytes, unsigned char value) {
  auto const* byte = static_cast<unsigned char const*>(first);
  return std::all_of(byte, byte + bytes, [&](unsigned char b) { return b == value; });
}

/// Hides a value from the compiler, which would rightly warn about some tests otherwise.
std::size_t at_run_time(std::size_t value) {
  std::size_t volatile hidden = value;
  return hidden;
}

/// An arena on chunks of `bytes`, with its calls to the operating system on record.
struct watched_arena {
  explicit watched_arena(arena_options options = {}) : resource{virtual_memory{{}, os}, options} {}
  recording_os os;
  arena resource;
};

// ---- creation ----

// S0.1
TEST(arena, reserves_address_space_and_commits_nothing) {
  watched_arena a{{.reserve = 256 * MiB}};
  EXPECT_EQ(a.os.reserves, 1u);
  EXPECT_EQ(a.os.commits, 0u);
  const arena_stats stats = a.resource.stats();
  EXPECT_EQ(stats.reserved_bytes, 256 * MiB);
  EXPECT_EQ(stats.committed_bytes, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
}

// S0.1
TEST(arena, only_committed_bytes_can_be_resident) {
  watched_arena a{{.reserve = 64 * MiB, .commit_step = 64 * KiB}};
  std::memset(a.resource.allocate(1), 1, 1);
  EXPECT_EQ(a.os.committed_bytes, 64 * KiB);
}

// S0.16
TEST(arena, commits_whole_pages_in_steps_clipped_to_the_reservation) {
  struct sizes {
    std::size_t reserve, commit_step, reserved;
    std::vector<std::size_t> committed;  // after each further block of a page
  };
  for (sizes const& each :
       {sizes{10 * page + 1, page + 1, 11 * page, {2 * page, 2 * page, 4 * page}},
        sizes{5 * page, 2 * page, 5 * page, {2 * page, 2 * page, 4 * page, 4 * page, 5 * page}},
        sizes{4 * page, 1 * GiB, 4 * page, {4 * page}}}) {
    watched_arena a{{.reserve = each.reserve, .commit_step = each.commit_step, .growable = false}};
    EXPECT_EQ(a.resource.stats().reserved_bytes, each.reserved);
    for (std::size_t committed : each.committed) {
      (void)a.resource.allocate(page);
      EXPECT_EQ(a.resource.stats().committed_bytes, committed);
    }
  }
}

TEST(arena, commit_calls_are_logarithmic_in_allocated_bytes) {
  watched_arena a{{.reserve = 1 * GiB, .commit_step = 64 * KiB}};
  for (std::size_t i = 0; i < 256 * MiB / page; ++i) (void)a.resource.allocate(page);
  EXPECT_LT(a.os.commits, 100u);
  EXPECT_LE(a.resource.stats().committed_bytes, 256 * MiB + 256 * MiB / 8 + 64 * KiB);
}

TEST(arena, creation_without_address_space_throws_and_leaks_nothing) {
  recording_os os;
  os.fail_from = 0;
  os.fail_count = recording_os::never;
  EXPECT_THROW((arena{virtual_memory{{}, os}, {.name = "starved"}}), out_of_memory);
  EXPECT_THROW((arena{{.reserve = max_size}}), out_of_memory);
}

TEST(arena, prefault_makes_committed_pages_resident) {
  arena a{{.reserve = 4 * MiB, .commit_step = 1 * MiB, .prefault = true}};
  EXPECT_EQ(resident_bytes(a.allocate(1), 1 * MiB), 1 * MiB);
}

TEST(arena, huge_pages_are_advised_and_committed_whole) {
  recording_os os;
  arena a{virtual_memory{{.huge_pages = huge_page_policy::advise}, os},
          {.reserve = 8 * MiB, .commit_step = page}};
  (void)a.allocate(1);
  EXPECT_EQ(os.advices, 1u);
  EXPECT_EQ(a.stats().committed_bytes, 2 * MiB);
}

TEST(arena, huge_pages_of_a_growing_arena_cost_at_most_a_twentieth) {
  arena a;
  void* const first = a.push_bytes(1);
  for (std::size_t mib = 8; mib <= 160; mib += 7) {
    while (a.position() < mib * MiB) std::memset(a.allocate(3000), 1, 3000);
    EXPECT_LE(resident_bytes(first, a.stats().committed_bytes), a.position() + a.position() / 20) << mib;
  }
}

// ---- push ----

// S0.3
TEST(arena, push_returns_zeroed_typed_memory) {
  arena a;
  struct particle {
    double position[3];
    int id;
  };
  static_assert(std::is_same_v<decltype(a.push<particle>()), particle*>);
  std::memset(a.allocate(sizeof(particle)), 0xFF, sizeof(particle));
  a.reset();
  EXPECT_TRUE(all_bytes_are(a.push<particle>(), sizeof(particle), 0));
}

// S0.3
TEST(arena, push_constructs_from_arguments) {
  arena a;
  EXPECT_EQ(*a.push<std::complex<double>>(3.0, 4.0), (std::complex<double>{3, 4}));
  EXPECT_EQ(*a.push<int>(7), 7);
  EXPECT_EQ((*a.push<std::array<int, 2>>(std::array{1, 2}))[1], 2);
  EXPECT_EQ(*a.push<std::complex<float>>(), std::complex<float>{});
}

TEST(arena, push_with_a_throwing_constructor_leaves_the_arena_unchanged) {
  struct refuses {
    refuses() { throw std::runtime_error("no"); }
  };
  arena a;
  (void)a.allocate(100);
  const std::size_t before = a.position();
  EXPECT_THROW((void)a.push<refuses>(), std::runtime_error);
  EXPECT_THROW(a.make<refuses>(), std::runtime_error);
  EXPECT_THROW((void)a.push_array<refuses>(3), std::runtime_error);
  EXPECT_EQ(a.position(), before);
}

// S0.4
TEST(arena, push_array_is_contiguous_and_zeroed) {
  arena a;
  std::memset(a.allocate(4096), 0xFF, 4096);
  a.reset();
  const std::span<double> x = a.push_array<double>(500);
  ASSERT_EQ(x.size(), 500u);
  EXPECT_TRUE(all_bytes_are(x.data(), x.size_bytes(), 0));
  EXPECT_EQ(&x[499] - &x[0], 499);
  const std::span<std::complex<double>> z = a.push_array<std::complex<double>>(10);
  EXPECT_EQ(z[9], std::complex<double>{});
}

TEST(arena, push_array_copies_a_value) {
  arena a;
  (void)a.push_array<int>(100, 7);
  a.reset();
  EXPECT_TRUE(std::ranges::equal(a.push_array<int>(3, 5), std::array{5, 5, 5}));
  EXPECT_TRUE(std::ranges::equal(a.push_array(2, 0.5), std::array{0.5, 0.5}));
  EXPECT_TRUE(a.push_array<int>(0, 5).empty());
}

template <class T, class... Arguments>
concept is_made = requires(arena& a, Arguments&&... arguments) {
  a.make<T>(std::forward<Arguments>(arguments)...);
  (void)a.push<T>(no_destructor, std::forward<Arguments>(arguments)...);
};
// Has no constructor with a resource at its end.
struct takes_arena {
  using allocator_type = std::pmr::polymorphic_allocator<>;
  explicit takes_arena(arena& memory) : text{&memory} {}
  std::pmr::string text;
};

TEST(arena, make_requires_a_resource_for_types_that_take_one) {
  using numbers = std::pmr::vector<int>;
  static_assert(!is_made<numbers> && !is_made<numbers, int> && !is_made<numbers, int*, int*>);
  static_assert(!is_made<std::pmr::string, char const*> && !is_made<std::pmr::map<int, int>>);
  static_assert(is_made<numbers, arena*> && is_made<numbers, int, std::pmr::memory_resource*>);
  static_assert(is_made<numbers, int*, int*, numbers::allocator_type> && is_made<numbers, numbers>);
  static_assert(!is_made<numbers, numbers&> && !is_made<numbers, numbers const&>);
  static_assert(is_made<numbers, std::pmr::memory_resource*> && is_made<numbers, numbers const&, arena*>);
  static_assert(is_made<std::pmr::string, std::pmr::memory_resource*>);
  static_assert(is_made<std::pmr::map<int, int>, std::pmr::memory_resource*>);
  static_assert(is_made<std::pmr::string, char const*, arena*> && is_made<std::pmr::map<int, int>, arena*>);
  static_assert(is_made<std::vector<int>, int> && is_made<int, int> && is_made<takes_arena, arena&>);
  arena a;
  std::pmr::vector<int> const& seven = *a.make<numbers>(10, 7, &a);
  EXPECT_TRUE(a.owns(seven.data()));
  EXPECT_EQ(seven.back(), 7);
}

TEST(arena, push_copy_copies_the_elements_of_a_contiguous_range) {
  arena a;
  const std::vector<int> values{1, 2, 3};
  const std::span<int> copy = a.push_copy(values);
  EXPECT_NE(copy.data(), values.data());
  EXPECT_TRUE(std::ranges::equal(copy, std::array{1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(a.push_copy(std::span{values}.first(2)), std::array{1, 2}));
  EXPECT_TRUE(std::ranges::equal(a.push_copy(std::array{2.0, 4.0}), std::array{2.0, 4.0}));
  EXPECT_TRUE(std::ranges::equal(a.push_copy({7, 8}), std::array{7, 8}));
  EXPECT_TRUE(a.push_copy(std::span<int const>{}).empty());
}

TEST(arena, push_copy_and_fill_that_throw_leave_the_arena_unchanged) {
  struct refuses {
    refuses() = default;
    refuses(refuses const&) { throw std::runtime_error{"no"}; }
  };
  arena a;
  (void)a.push<int>(1);
  const std::size_t before = a.position();
  EXPECT_THROW((void)a.push_copy(std::array<refuses, 2>{}), std::runtime_error);
  EXPECT_THROW((void)a.push_array<refuses>(2, refuses{}), std::runtime_error);
  EXPECT_EQ(a.position(), before);
}

TEST(arena, push_string_copies_text_and_appends_a_null_character) {
  arena a;
  std::string text = "step 12";
  const std::string_view copy = a.push_string(text);
  text = "changed";
  EXPECT_EQ(copy, "step 12");
  EXPECT_STREQ(copy.data(), "step 12");
  EXPECT_STREQ(a.push_string({}).data(), "");
}

TEST(arena, push_array_of_no_elements_is_empty_and_has_an_address) {
  arena a;
  EXPECT_TRUE(a.push_array<int>(0).empty());
  EXPECT_NE(a.push_array<int>(0).data(), nullptr);
}

// S0.4
TEST(arena, push_array_whose_size_overflows_is_an_error_and_allocates_nothing) {
  statistics_resource below{std::pmr::new_delete_resource()};
  arena a;
  upstream_arena in_upstream{&below};
  const auto expect_nothing_allocated = [](auto& of) {
    auto* const newest = of.template push_array<double>(8).data();
    const arena_stats before = of.stats();
    for (std::size_t n : {max_size, max_size / sizeof(double) + 1, max_size / 2}) {
      EXPECT_THROW((void)of.template push_array<double>(n), out_of_memory) << n;
      EXPECT_THROW((void)of.template push_array<double>(n, uninitialized), out_of_memory) << n;
    }
    const arena_stats after = of.stats();
    EXPECT_EQ(after.used_bytes, before.used_bytes);
    EXPECT_EQ(after.peak_bytes, before.peak_bytes);
    EXPECT_EQ(after.committed_bytes, before.committed_bytes);
    EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
    EXPECT_EQ(after.chunks, before.chunks);
    EXPECT_EQ(after.system_calls, before.system_calls);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(of.template push_array<double>(8).data(), newest + 8) << "the next block has the same address";
  };
  expect_nothing_allocated(a);
  expect_nothing_allocated(in_upstream);
  EXPECT_EQ(below.stats().allocations, 1u) << "the first chunk";
}

// S0.17
TEST(arena, every_push_is_aligned_for_its_type_and_to_16_at_least) {
  struct alignas(64) cache_line {
    char bytes[64];
  };
  struct alignas(4096) whole_page {
    char bytes[4096];
  };
  arena a;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(address(a.push<char>()) % 16, 0u);
    EXPECT_EQ(address(a.push<cache_line>()) % 64, 0u);
    EXPECT_EQ(address(a.push_array<whole_page>(2).data()) % 4096, 0u);
    EXPECT_EQ(address(a.push_bytes(3, 512)) % 512, 0u);
  }
}

TEST(arena, rejects_an_alignment_that_is_not_a_power_of_two) {
  arena a;
  (void)a.allocate(8);
  const std::size_t before = a.position();
  if constexpr (check_level >= 2) {
    EXPECT_THROW((void)a.allocate(8, at_run_time(48)), std::invalid_argument);
  }
  EXPECT_THROW((void)a.allocate(2 * GiB, at_run_time(48)), std::invalid_argument);
  EXPECT_EQ(a.position(), before);
}

// S0.31
TEST(arena, zeroing_skips_memory_that_is_fresh_from_the_system) {
  // 64 MiB of zeros use no page: nothing wrote them, but they still read as zero.
  arena a{{.reserve = 128 * MiB}};
  const std::span<std::byte> fresh = a.push_array<std::byte>(64 * MiB);
  EXPECT_EQ(resident_bytes(fresh.data(), fresh.size()), 0u);
  EXPECT_EQ(fresh.front(), std::byte{0});
  EXPECT_EQ(fresh.back(), std::byte{0});
}

// S0.31
TEST(arena, zeroing_covers_exactly_the_bytes_used_before) {
  arena a{{.reserve = 64 * MiB}};
  std::memset(a.allocate(10 * page), 0xFF, 10 * page);
  a.reset();
  auto* first = static_cast<std::byte*>(a.push_bytes(20 * page));
  EXPECT_TRUE(all_bytes_are(first, 20 * page, 0));
  a.reset();
  std::memset(a.allocate(page), 0xFF, page);  // a deallocated block is no longer fresh either
  a.deallocate(reinterpret_cast<void*>(address(first)), page);
  EXPECT_TRUE(all_bytes_are(a.push_bytes(page), page, 0));
}

TEST(arena, zeroing_a_large_block_touches_no_fresh_page) {
  arena a{{.reserve = 128 * MiB}};
  std::memset(a.allocate(10 * page), 0xFF, 10 * page);
  a.reset();
  auto* first = static_cast<std::byte*>(a.push_bytes(64 * MiB));
  EXPECT_TRUE(all_bytes_are(first, 10 * page, 0));
  EXPECT_LE(resident_bytes(first, 64 * MiB), 11 * page);
}

// S0.31
TEST(arena, reentered_chunk_has_fresh_memory_after_trim) {
  arena a{{.reserve = 16 * MiB}};
  (void)a.allocate(16 * MiB);
  const arena_mark full = a.mark();
  std::memset(a.allocate(12 * MiB), 0xFF, 12 * MiB);  // dirties the second chunk
  a.rewind(full);
  (void)a.allocate(page);
  (void)a.trim();
  auto* again = static_cast<std::byte*>(a.push_bytes(8 * MiB));
  EXPECT_LE(resident_bytes(again, 8 * MiB), page);
  EXPECT_TRUE(all_bytes_are(again, 8 * MiB, 0));
}

// S0.32
TEST(arena, level_2_fills_every_chunk_that_a_rewind_frees) {
  if constexpr (check_level < 2) GTEST_SKIP() << "needs check level 2; this build has " << check_level;
  arena a{{.reserve = 64 * KiB}};
  const arena_mark begin = a.mark();
  std::memset(a.allocate(40 * KiB), 0x5A, 40 * KiB);
  std::memset(a.allocate(50 * KiB), 0x5A, 50 * KiB);  // in a second chunk
  a.rewind(begin);
  EXPECT_TRUE(all_bytes_are(a.push_bytes(40 * KiB, uninitialized), 40 * KiB, 0xDD));
  EXPECT_TRUE(all_bytes_are(a.push_bytes(50 * KiB, uninitialized), 50 * KiB, 0xDD));
}

// S0.3 S0.32
TEST(arena, uninitialized_push_shows_old_bytes_or_the_fill_of_level_2) {
  arena a;
  std::memset(a.allocate(256), 0x5A, 256);
  a.reset();
  const unsigned char expected = check_level >= 2 ? 0xDD : 0x5A;
  const std::span<unsigned char> old = a.push_array<unsigned char>(128, uninitialized);
  EXPECT_TRUE(all_bytes_are(old.data(), 128, expected));
  EXPECT_TRUE(all_bytes_are(a.push_bytes(64, uninitialized), 64, expected));
  EXPECT_TRUE(all_bytes_are(a.push<int>(uninitialized), sizeof(int), expected));
}

// ---- positions ----

// S0.6
TEST(arena, position_increases_across_chunks) {
  arena a{{.reserve = 64 * KiB}};
  std::size_t last = a.position();
  EXPECT_EQ(last, 0u);
  for (int i = 0; i < 500; ++i) {
    (void)a.allocate(1 + static_cast<std::size_t>(i) * 37 % 3000);
    EXPECT_GT(a.position(), last);
    last = a.position();
  }
  EXPECT_GT(a.stats().chunks, 5u);
  EXPECT_EQ(a.stats().used_bytes, last);
}

// S0.7
TEST(arena, rewind_restores_the_position_and_the_next_address) {
  arena a;
  (void)a.allocate(100);
  const arena_mark mark = a.mark();
  void* const next = a.allocate(40);
  (void)a.allocate(10'000);
  a.rewind(mark);
  EXPECT_EQ(a.position(), mark.position());
  EXPECT_EQ(a.allocate(40), next);
}

// S0.8
TEST(arena, pop_frees_the_last_bytes_or_all) {
  arena a;
  void* const first = a.push_bytes(160);
  void* const second = a.push_bytes(40);
  a.pop(40);
  EXPECT_EQ(a.position(), 160u);
  EXPECT_EQ(a.push_bytes(40), second);
  for (std::size_t bytes : {std::size_t{209}, std::size_t{1} << 40, max_size - 8, max_size}) {
    a.pop(bytes);
    EXPECT_EQ(a.position(), 0u);
    EXPECT_EQ(a.allocate(200), first);
  }
}

// S0.9
TEST(arena, fresh_and_grown_arenas_survive_pop_and_reset) {
  arena fresh;
  fresh.pop(0);
  fresh.pop(max_size);
  fresh.reset();
  EXPECT_EQ(fresh.position(), 0u);
  *fresh.push<int>() = 1;

  for (int round = 0; round < 3; ++round) {
    arena grown{{.reserve = 64 * KiB}};
    for (int i = 0; i < 100; ++i) (void)grown.allocate(10'000);
    round == 0 ? grown.pop(max_size) : round == 1 ? grown.reset() : grown.release();
    EXPECT_EQ(grown.position(), 0u);
    grown.check_invariants();
    std::memset(grown.allocate(200'000), 1, 200'000);
    grown.check_invariants();
  }
}

// S0.12
TEST(arena, rewind_to_the_end_of_a_chunk_returns_to_it) {
  arena a{{.reserve = 64 * KiB}};
  (void)a.allocate(64 * KiB - 1024);
  const arena_mark end = a.mark();
  (void)a.allocate(32 * KiB);  // goes to a second chunk
  a.rewind(end);
  EXPECT_EQ(a.position(), end.position());
  EXPECT_EQ(a.position(), 64 * KiB - 1024);
  void* const filler = a.allocate(1024);  // the rest of the first chunk
  const arena_mark brim = a.mark();
  void* const beyond = a.allocate(16);
  a.rewind(brim);
  EXPECT_EQ(a.allocate(16), beyond);
  a.rewind(end);
  EXPECT_EQ(a.allocate(1024), filler);
}

TEST(arena, deallocating_null_does_nothing) {
  arena a{{.reserve = 64 * KiB}};
  arena untouched{{.reserve = 64 * KiB}};
  (void)a.allocate(1024);
  for (const std::size_t bytes : {0u, 16u, 1024u}) {
    a.deallocate(nullptr, bytes);
    untouched.deallocate(nullptr, bytes);
  }
  EXPECT_EQ(a.position(), 1024u);
  EXPECT_EQ(untouched.position(), 0u);
  a.check_invariants();
  untouched.check_invariants();
}

// S0.12
TEST(arena, distinguishes_marks_before_and_after_a_chunk_end) {
  arena a{{.reserve = 64 * KiB}};
  (void)a.allocate(64 * KiB - 256);
  const arena_mark below = a.mark();
  void* const small = a.allocate(64);
  a.rewind(below);
  void* const big = a.allocate(4096);  // the first block of the second chunk
  a.deallocate(big, 4096);
  const arena_mark above = a.mark();
  EXPECT_EQ(below.position(), above.position());
  void* const small_above = a.allocate(64);
  a.rewind(above);
  EXPECT_EQ(a.allocate(64), small_above);
  a.rewind(below);
  EXPECT_EQ(a.allocate(64), small);
}

// ---- growth ----

// S0.13
TEST(arena, an_oversize_request_gets_a_chunk_of_its_own_size_in_one_step) {
  watched_arena a{{.reserve = 64 * KiB}};
  (void)a.resource.allocate(10);
  const std::size_t reserves = a.os.reserves;
  std::memset(a.resource.allocate(10 * MiB), 1, 10 * MiB);
  EXPECT_EQ(a.os.reserves, reserves + 1);
  EXPECT_EQ(a.resource.stats().reserved_bytes, 64 * KiB + 10 * MiB);
  (void)a.resource.allocate(10);  // later blocks are as before
  EXPECT_EQ(a.resource.stats().reserved_bytes, 64 * KiB + 10 * MiB + 64 * KiB);
}

// S0.14
TEST(arena, arena_without_growth_throws_when_full_and_stays_usable) {
  arena a{{.reserve = 64 * KiB, .growable = false, .name = "fixed"}};
  (void)a.allocate(60 * KiB);
  const std::size_t before = a.position();
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)a.allocate(5 * KiB, 64); });
  EXPECT_STREQ(error.report().resource, "fixed");
  EXPECT_EQ(error.report().requested_bytes, 5 * KiB);
  EXPECT_EQ(error.report().alignment, 64u);
  EXPECT_EQ(error.report().used_bytes, 60 * KiB);
  EXPECT_EQ(error.report().reserved_bytes, 64 * KiB);
  EXPECT_EQ(error.report().largest_bytes, 4 * KiB);
  EXPECT_EQ(a.try_allocate(5 * KiB), nullptr);
  EXPECT_EQ(a.position(), before);
  EXPECT_NE(a.try_allocate(4 * KiB), nullptr);
  EXPECT_EQ(a.stats().chunks, 1u);
}

// S0.14
TEST(arena, exhaustion_reports_a_violation_if_configured) {
  const violation_recorder recorder;
  arena a{{.reserve = 64 * KiB, .growable = false, .exhaustion = exhaustion_policy::abort, .name = "fatal"}};
  EXPECT_THROW((void)a.allocate(65 * KiB), out_of_memory);  // the recorder returns
  ASSERT_EQ(recorder.count(violation_kind::exhausted), 1u);
  EXPECT_PRED2(test::contains, recorder.reports()[0].message, "fatal: out of memory: 66560 bytes");
}

// S0.14
TEST(arena_death, exhaustion_aborts_by_policy) {
  arena a{{.reserve = 64 * KiB, .growable = false, .exhaustion = exhaustion_policy::abort, .name = "fatal"}};
  EXPECT_DEATH((void)a.allocate(65 * KiB), "tidemark: fatal: out of memory: 66560 bytes");
}

// S0.15
TEST(arena, rewind_over_a_chunk_keeps_it_for_reuse) {
  watched_arena a{{.reserve = 64 * KiB}};
  const auto batch = [&] {
    const arena_mark mark = a.resource.mark();
    for (int i = 0; i < 24; ++i) (void)a.resource.allocate(10 * KiB);
    a.resource.rewind(mark);
  };
  batch();
  const std::size_t calls = a.os.calls + a.os.releases;
  const std::uint64_t counted = a.resource.stats().system_calls;
  for (int i = 0; i < 1000; ++i) batch();
  EXPECT_EQ(a.os.calls + a.os.releases, calls);
  EXPECT_EQ(a.resource.stats().system_calls, counted);
  EXPECT_EQ(a.resource.stats().chunks, 4u);
}

TEST(arena, aligns_a_block_when_the_next_kept_chunk_is_not_aligned) {
  constexpr std::size_t align = 2 * virtual_memory::range_alignment;
  for (int full = 1; full < 4; ++full) {  // of neighbours, each second is aligned so
    arena a{{.reserve = 64 * KiB}};
    for (int i = 0; i < 5; ++i) (void)a.allocate(64 * KiB);
    a.reset();
    for (int i = 0; i < full; ++i) (void)a.allocate(64 * KiB);
    EXPECT_EQ(address(a.allocate(16, align)) % align, 0u);
    a.check_invariants();
  }
}

TEST(arena, commits_more_of_the_current_chunk_before_a_kept_chunk) {
  arena a{{.reserve = 64 * KiB, .commit_step = page}};
  void* const first = a.allocate(page);
  (void)a.allocate(64 * KiB);  // in a second chunk: 60 KiB of the first are left without memory
  a.reset();
  (void)a.allocate(page);
  EXPECT_EQ(address(a.allocate(page)), address(first) + page);
  a.check_invariants();
}

TEST(arena, rejects_a_wrapping_size_when_a_kept_chunk_is_next) {
  arena a{{.reserve = 64 * KiB}};
  (void)a.allocate(64 * KiB);
  (void)a.allocate(64 * KiB);
  a.reset();
  (void)a.allocate(64 * KiB);
  for (std::size_t less = 0; less < 40; ++less) {
    EXPECT_THROW((void)a.allocate(at_run_time(max_size - less)), out_of_memory);
  }
  EXPECT_EQ(a.position(), 64 * KiB);
}

// S0.15
TEST(arena, chunks_beyond_the_retain_limit_are_released_by_a_rewind) {
  watched_arena a{{.reserve = 64 * KiB, .commit_step = 64 * KiB, .retain = 192 * KiB}};
  for (int i = 0; i < 10; ++i) (void)a.resource.allocate(60 * KiB);
  EXPECT_EQ(a.resource.stats().chunks, 10u);
  a.resource.reset();
  EXPECT_EQ(a.resource.stats().chunks, 3u);
  EXPECT_EQ(a.resource.stats().committed_bytes, 192 * KiB);
  EXPECT_EQ(a.os.releases, 7u);
}

TEST(arena, keeps_the_chunks_needed_first_on_rewind) {
  arena a{{.reserve = 64 * KiB, .commit_step = 64 * KiB, .retain = 192 * KiB}};
  const auto batch = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(a.allocate(60 * KiB));
    return blocks;
  };
  const std::vector<void*> first = batch();
  a.reset();
  const std::vector<void*> second = batch();
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 3, second.begin()));
}

TEST(arena, visits_a_bounded_number_of_kept_chunks_when_growing) {
  // A kept chunk with enough room lies behind 8 or 64 chunks that are too small. The near one is found;
  // otherwise a new chunk is made.
  for (int too_small : {8, 64}) {
    arena a{{.reserve = 8 * KiB}};
    for (int i = 0; i <= too_small; ++i) (void)a.allocate(5 * KiB);
    void* const large = a.allocate(100 * KiB);
    const std::size_t chunks = a.stats().chunks;
    a.reset();
    void* const again = a.allocate(100 * KiB);
    EXPECT_EQ(again == large, too_small == 8);
    EXPECT_EQ(a.stats().chunks, too_small == 8 ? chunks : chunks + 1);
    a.check_invariants();
  }
}

// S0.16
TEST(arena, retries_a_refused_commit_step_with_the_needed_bytes) {
  recording_os os;
  os.commit_limit_bytes = 100 * KiB;
  arena a{virtual_memory{{}, os}, {.reserve = 1 * GiB, .commit_step = 64 * KiB}};
  std::memset(a.allocate(64 * KiB), 1, 64 * KiB);
  std::memset(a.allocate(20 * KiB), 1, 20 * KiB);  // a whole step would exceed the reservation
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)a.allocate(20 * KiB); });
  EXPECT_EQ(error.report().largest_bytes, 0u) << "the reservation has room, but no memory comes behind it";
  EXPECT_NE(a.try_allocate(16 * KiB), nullptr);
}

TEST(arena, uses_a_kept_chunk_when_the_system_refuses_a_commit) {
  recording_os os;
  arena a{virtual_memory{{}, os}, {.reserve = 2 * MiB, .commit_step = page}};
  (void)a.allocate(page);
  (void)a.allocate(2 * MiB);  // a second chunk, all of it committed
  a.reset();
  os.commit_limit_bytes = os.committed_bytes;
  std::memset(a.allocate(1 * MiB), 1, 1 * MiB);  // the first chunk has room for it, and no memory
  a.check_invariants();
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)a.allocate(1 * MiB + 1); });
  EXPECT_EQ(error.report().largest_bytes, 1 * MiB);
}

TEST(arena, lets_the_os_table_write_to_memory_that_it_receives) {
  // The recording table writes to memory that it prefaults and to returned memory. AddressSanitizer
  // would report a wrong write.
  recording_os os;
  arena a{virtual_memory{{.prefault = true}, os}, {.reserve = 4 * MiB}};
  for (int round = 0; round < 3; ++round) {
    {
      const arena::scope scope{a};
      std::memset(a.allocate(1 * MiB), 1, 1 * MiB);
    }
    EXPECT_GE(a.trim(), 1 * MiB);
    auto* zeros = static_cast<unsigned char*>(a.push_bytes(1 * MiB));
    EXPECT_TRUE(all_bytes_are(zeros, 1 * MiB, 0));
    a.reset();
  }
  EXPECT_EQ(os.decommits, 3u);
}

// S0.25
TEST(arena, release_and_destruction_return_everything) {
  recording_os os;
  {
    arena a{virtual_memory{{}, os}, {.reserve = 64 * KiB}};
    for (int i = 0; i < 50; ++i) (void)a.allocate(50 * KiB);
    a.release();
    EXPECT_EQ(os.outstanding, 0u);
    EXPECT_EQ(a.stats().reserved_bytes, 0u);
    EXPECT_EQ(a.stats().chunks, 0u);
    std::memset(a.allocate(300 * KiB), 1, 300 * KiB);
    EXPECT_GT(os.outstanding, 0u);
    a.check_invariants();
  }
  EXPECT_EQ(os.outstanding, 0u);
  EXPECT_EQ(os.releases, os.reserves);
}

// S0.30
TEST(arena, trim_returns_resident_memory_to_the_system) {
  arena a{{.reserve = 1 * GiB}};
  void* const first = a.allocate(400 * MiB);
  std::memset(first, 1, 400 * MiB);
  EXPECT_EQ(resident_bytes(first, 400 * MiB), 400 * MiB);
  a.reset();
  EXPECT_GE(a.trim(), 400 * MiB);
  EXPECT_EQ(resident_bytes(first, 400 * MiB), 0u);
  EXPECT_EQ(a.stats().committed_bytes, 0u);
  std::memset(a.allocate(1 * MiB), 1, 1 * MiB);
}

// S0.34
TEST(arena, trim_counts_kept_chunks_as_memory_above_the_position) {
  arena a{{.reserve = 64 * KiB, .commit_step = 64 * KiB}};
  for (int i = 0; i < 6; ++i) (void)a.allocate(64 * KiB);
  const std::size_t calls = a.stats().system_calls;
  a.reset();
  EXPECT_EQ(a.trim(200 * KiB), 3 * 64 * KiB)
      << "64 KiB of the current chunk and two whole chunks fit in 200 KiB";
  EXPECT_EQ(a.stats().committed_bytes, 3 * 64 * KiB);
  EXPECT_EQ(a.stats().system_calls, calls + 3) << "one call for each released chunk";
}

// S0.30
TEST(arena, trim_keeps_used_bytes_and_the_requested_bytes_above) {
  arena a{{.reserve = 1 * MiB, .commit_step = page}};
  const std::span<unsigned char> kept = a.push_array<unsigned char>(10 * page);
  std::memset(kept.data(), 3, kept.size());
  const arena_mark mark = a.mark();
  for (int i = 0; i < 5; ++i) (void)a.allocate(800 * KiB);
  a.rewind(mark);
  (void)a.trim(4 * page);
  EXPECT_EQ(a.stats().committed_bytes, 14 * page);
  EXPECT_EQ(a.stats().chunks, 1u);
  EXPECT_TRUE(all_bytes_are(kept.data(), kept.size(), 3));
  EXPECT_EQ(a.trim(4 * page), 0u);
  a.check_invariants();
}

TEST(arena, failed_decommit_keeps_the_memory_and_its_statistics) {
  recording_os os;
  arena a{virtual_memory{{}, os}, {.reserve = 1 * MiB}};
  std::memset(a.allocate(500 * KiB), 0xFF, 500 * KiB);
  a.reset();
  const std::size_t committed = a.stats().committed_bytes;
  os.fail_from = os.calls;
  EXPECT_EQ(a.trim(), 0u);
  EXPECT_EQ(a.stats().committed_bytes, committed);
  auto* bytes = static_cast<unsigned char*>(a.push_bytes(500 * KiB));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[500 * KiB - 1], 0);
}

// ---- use ----

// S0.26
TEST(arena, a_permanent_and_a_step_arena_never_touch_each_other) {
  arena permanent{{.name = "permanent"}};
  arena step{{.reserve = 64 * KiB, .name = "step"}};
  const std::span<double> weights = permanent.push_array<double>(1000);
  std::fill(weights.begin(), weights.end(), 0.5);
  const std::size_t position = permanent.position();
  for (int i = 0; i < 200; ++i) {
    const arena::scope scope{step};
    for (int k = 0; k < 20; ++k) {
      const std::span<double> temporary = step.push_array<double>(1000);
      std::fill(temporary.begin(), temporary.end(), -1.0);
    }
  }
  EXPECT_EQ(permanent.position(), position);
  EXPECT_EQ(std::count(weights.begin(), weights.end(), 0.5), 1000);
}

// S0.27 S0.28
TEST(arena, batches_of_a_training_run_return_to_the_same_position_without_growth) {
  // 37,520 batches: save, forward, loss, backward, step with a nested scope, restore.
  arena permanent{{.name = "permanent"}};
  arena graph{{.reserve = 16 * MiB, .name = "graph"}};
  const std::span<float> weights = permanent.push_array<float>(64 * 128);
  std::size_t resident = 0;
  const std::size_t start = graph.position();
  for (int batch = 0; batch < 37'520; ++batch) {
    const arena_mark saved = graph.mark();
    const std::span<float> activations = graph.push_array<float>(32 * 128, uninitialized);
    activations[0] = 1;
    float* const loss = graph.push<float>();
    const std::span<float> gradients = graph.push_array<float>(64 * 128, uninitialized);
    gradients[0] = *loss;
    {
      arena::scope optimizer{graph};
      const std::span<float> update = optimizer.push_array<float>(64 * 128, uninitialized);
      update[0] = gradients[0];
      weights[0] += update[0];
    }
    graph.rewind(saved);
    ASSERT_EQ(graph.position(), start);
    if (batch == 100) resident = test::resident_set_bytes();
  }
  EXPECT_LE(test::resident_set_bytes(), resident + 64 * KiB);
  EXPECT_EQ(graph.stats().chunks, 1u);
}

// S0.33
TEST(arena, destructors_run_in_reverse_order_when_rewound_over) {
  struct logs {
    logs(std::vector<int>& log, int id) : log_{&log}, id_{id} {}
    ~logs() { log_->push_back(id_); }
    std::vector<int>* log_;
    int id_;
  };
  std::vector<int> log;
  {
    arena a{{.reserve = 64 * KiB}};
    a.make<logs>(log, 0);
    const arena_mark mark = a.mark();
    for (int i = 1; i <= 5; ++i) {
      a.make<logs>(log, i);
      (void)a.allocate(40 * KiB);  // so that chunks are crossed
    }
    a.rewind(mark);
    EXPECT_EQ(log, (std::vector<int>{5, 4, 3, 2, 1}));
    a.make<logs>(log, 6);
    a.pop(1);
    EXPECT_EQ(log.back(), 6);
    a.make<logs>(log, 7);
    a.reset();
    EXPECT_EQ(log, (std::vector<int>{5, 4, 3, 2, 1, 6, 7, 0}));
    a.make<logs>(log, 8);
  }
  EXPECT_EQ(log.back(), 8);
}

// S0.33
TEST(arena, an_object_that_holds_memory_of_the_same_arena_is_destroyed_cleanly) {
  arena a;
  for (int i = 0; i < 3; ++i) {
    const arena::scope scope{a};
    auto* rows = a.make<std::pmr::vector<std::pmr::vector<int>>>(&a);
    for (int k = 0; k < 20; ++k) rows->emplace_back(static_cast<std::size_t>(k), k);
    EXPECT_EQ(rows->at(19)[0], 19);
  }
  EXPECT_EQ(a.position(), 0u);
}

TEST(arena, pushed_objects_are_not_destroyed) {
  static int destroyed = 0;
  struct counts {
    ~counts() { ++destroyed; }
  };
  {
    arena a;
    (void)a.push<counts>(no_destructor);
    (void)a.push_array<counts>(3, no_destructor);
    a.reset();
  }
  EXPECT_EQ(destroyed, 0);
}

// S0.13 S0.34
TEST(arena, stats_report_bytes_chunks_and_calls) {
  watched_arena a{{.reserve = 64 * KiB, .commit_step = 64 * KiB, .name = "told"}};
  (void)a.resource.allocate(100);
  for (int i = 0; i < 3; ++i) (void)a.resource.allocate(40 * KiB);
  const std::size_t top = a.resource.position();
  a.resource.reset();
  (void)a.resource.allocate(32);
  const arena_stats stats = a.resource.stats();
  EXPECT_STREQ(stats.name, "told");
  EXPECT_EQ(stats.used_bytes, 32u);
  EXPECT_EQ(stats.peak_bytes, top);
  EXPECT_EQ(stats.peak_bytes, 112u + 3 * 40 * KiB);
  EXPECT_EQ(stats.committed_bytes, 3 * 64 * KiB);
  EXPECT_EQ(stats.reserved_bytes, 3 * 64 * KiB);
  EXPECT_EQ(stats.chunks, 3u);
  EXPECT_EQ(stats.system_calls, a.os.reserves + a.os.commits);
  if constexpr (check_level >= 2) {
    EXPECT_EQ(stats.allocations, 5u);
  } else {
    EXPECT_FALSE(stats.allocations.has_value());
  }
}

TEST(arena, counts_only_the_allocations_that_it_served) {
  if (check_level < 2) GTEST_SKIP() << "allocations are counted at level 2";
  arena step{{.reserve = 64 * KiB, .growable = false}};
  EXPECT_EQ(step.try_allocate(1 * MiB), nullptr);
  EXPECT_THROW((void)step.allocate(1 * MiB), out_of_memory);
  std::size_t no_power_of_two = 3;
  EXPECT_THROW((void)step.allocate(8, no_power_of_two), std::invalid_argument);
  EXPECT_EQ(step.stats().allocations, 0u);
  EXPECT_NE(step.try_allocate(8), nullptr);
  (void)step.allocate(8);
  (void)step.allocate(32 * KiB);  // beyond what is committed
  EXPECT_EQ(step.stats().allocations, 3u);
}

// S0.34
TEST(arena, peak_is_the_highest_position_ever_across_chunks_trims_and_releases) {
  arena a{{.reserve = 64 * KiB}};
  std::size_t highest = 0;
  for (std::size_t round = 1; round < 40; ++round) {
    for (std::size_t i = 0; i < round * 7 % 11; ++i) {
      (void)a.allocate(round * 997 % 30'000);
      highest = std::max(highest, a.position());
    }
    a.pop(round * 7919 % 40'000);
    if (round % 9 == 0) (void)a.trim();
    if (round % 13 == 0) a.reset();
    if (round % 17 == 0) a.pop(max_size), a.release();
    EXPECT_EQ(a.stats().peak_bytes, highest);
  }
}

TEST(arena, a_null_name_is_the_default_name) {
  arena a{{.name = nullptr}};
  EXPECT_STREQ(a.name(), "arena");
}

TEST(arena, owns_exactly_the_bytes_in_use) {
  arena a{{.reserve = 64 * KiB}};
  int outside = 0;
  char* const first = static_cast<char*>(a.allocate(100));
  (void)a.allocate(60 * KiB);
  char* const later = static_cast<char*>(a.allocate(60 * KiB));
  EXPECT_TRUE(a.owns(first));
  EXPECT_TRUE(a.owns(first + 99));
  EXPECT_TRUE(a.owns(later));
  EXPECT_FALSE(a.owns(later + 60 * KiB));
  EXPECT_FALSE(a.owns(&outside));
  EXPECT_FALSE(a.owns(nullptr));
  a.reset();
  EXPECT_FALSE(a.owns(first));
}

// S0.35
TEST(arena, level_2_reports_use_by_a_second_thread) {
  if constexpr (check_level < 2) GTEST_SKIP() << "needs check level 2; this build has " << check_level;
  const violation_recorder recorder;
  arena a{{.name = "mine"}};
  (void)a.allocate(1);
  std::thread{[&] { (void)a.allocate(1); }}.join();
  ASSERT_EQ(recorder.count(violation_kind::wrong_thread), 1u);
  EXPECT_EQ(recorder.reports()[0].message,
            "arena 'mine': allocate on a thread that does not own the arena; see release_thread_ownership()");
  a.release_thread_ownership();
  std::thread{[&] { (void)a.allocate(1); }}.join();
  EXPECT_EQ(recorder.count(violation_kind::wrong_thread), 1u);
  (void)a.mark();  // now it is this thread that is foreign
  EXPECT_EQ(recorder.count(violation_kind::wrong_thread), 2u);
}

TEST(arena, can_be_destroyed_by_another_thread) {
  const violation_recorder recorder;
  {
    arena a;
    std::thread{[&] { (void)a.allocate(1); }}.join();
  }
  EXPECT_TRUE(recorder.reports().empty());
}

// ---- as a memory resource ----

// S0.36
TEST(arena, deallocate_reclaims_the_newest_block_only) {
  arena a;
  void* const first = a.allocate(64);
  void* const second = a.allocate(64);
  a.deallocate(first, 64);
  EXPECT_EQ(a.position(), 128u);
  a.deallocate(second, 64);
  EXPECT_EQ(a.position(), 64u);
  a.deallocate(first, 64);
  EXPECT_EQ(a.position(), 0u);
}

TEST(arena, deallocate_makes_no_system_call) {
  arena a{{.reserve = 64 * KiB, .retain = 64 * KiB}};
  (void)a.allocate(64 * KiB);
  void* const first = a.allocate(64);
  a.deallocate(first, 64);
  const std::uint64_t calls = a.stats().system_calls;
  for (int i = 0; i < 1000; ++i) a.deallocate(a.allocate(64), 64);
  EXPECT_EQ(a.stats().system_calls, calls);
}

TEST(arena, leaves_an_oversize_chunk_when_its_large_block_is_freed) {
  arena a{{.reserve = 64 * KiB}};
  void* const large = a.allocate(1 * MiB);  // the first chunk stays empty below it
  a.deallocate(large, 1 * MiB);
  EXPECT_NE(a.allocate(64), large);
  EXPECT_EQ(a.position(), 64u);
  a.check_invariants();
}

TEST(arena, deallocate_never_reclaims_an_object_whose_destructor_is_due) {
  struct counts {
    ~counts() { ++*n; }
    int* n;
  };
  int n = 0;
  arena a;
  auto* made = a.make<counts>(&n);
  a.deallocate(made, sizeof(counts));
  EXPECT_GT(a.position(), 0u);
  a.reset();
  EXPECT_EQ(n, 1);
}

TEST(arena, expand_grows_and_shrinks_the_newest_block_in_place) {
  arena a{{.reserve = 64 * KiB, .commit_step = page}};
  void* const block = a.allocate(100);
  EXPECT_TRUE(a.expand(block, 100, 50 * KiB));
  std::memset(block, 1, 50 * KiB);
  EXPECT_EQ(a.position(), 50 * KiB);
  EXPECT_TRUE(a.expand(block, 50 * KiB, 10));
  EXPECT_EQ(a.position(), 16u);
  EXPECT_FALSE(a.expand(block, 10, 65 * KiB));  // not within this chunk
  EXPECT_FALSE(a.expand(block, 10, max_size));
  EXPECT_EQ(a.position(), 16u);
  (void)a.allocate(1);
  EXPECT_FALSE(a.expand(block, 10, 20));
  a.check_invariants();
}

TEST(arena, level_2_reports_a_foreign_and_a_late_deallocate) {
  if constexpr (check_level < 2) GTEST_SKIP() << "needs check level 2; this build has " << check_level;
  const violation_recorder recorder;
  arena a{{.name = "strict"}};
  int foreign = 0;
  a.deallocate(&foreign, sizeof foreign);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 1u);
  void* const late = a.allocate(64);
  a.reset();
  a.deallocate(late, 64);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 2u);
}

TEST(arena, try_allocate_never_throws) {
  test::recording_resource upstream;
  upstream.fail_from = 0;
  upstream.fail_count = test::supply::never;
  upstream_arena a{&upstream};
  EXPECT_EQ(a.try_allocate(100), nullptr);
  upstream.fail_from = test::supply::never;
  EXPECT_NE(a.try_allocate(100), nullptr);
}

// S0.29
TEST(units, are_binary) {
  static_assert(KiB == 1024 && MiB == 1024 * 1024 && GiB == 1024 * 1024 * 1024);
  static_assert(std::is_same_v<decltype(KiB), const std::size_t>);
  EXPECT_EQ(3 * MiB, std::size_t{3'145'728});
}

}  // namespace
}  // namespace tidemark::test
