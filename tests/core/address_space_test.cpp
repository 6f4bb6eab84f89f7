// SPDX-License-Identifier: Apache-2.0
// Strategy: the sources of memory by themselves, then through an arena. Device memory is a range of synthetic
// addresses that must not be touched, so a touch is a crash.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory_resource>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "made_up_memory.hpp"
#include "process_memory.hpp"
#include "recording_supply.hpp"

namespace tidemark {
namespace {

std::uintptr_t address(void const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// ---- os_memory ----

// S0.2
TEST(os_memory, every_call_can_be_replaced) {
  test::recording_os os;
  virtual_memory space{{.huge_pages = huge_page_policy::avoid, .prefault = true}, os};
  const byte_range range = space.reserve(1, 1 * MiB);
  ASSERT_FALSE(range.empty());
  ASSERT_TRUE(space.commit({range.begin, 64 * KiB}));
  std::memset(range.data(), 1, 64 * KiB);
  ASSERT_TRUE(space.decommit({range.begin, 64 * KiB}));
  space.release(range);
  EXPECT_EQ(os.reserves, 1u);
  EXPECT_EQ(os.advices, 1u);
  EXPECT_EQ(os.commits, 1u);
  EXPECT_EQ(os.prefaults, 1u);
  EXPECT_EQ(os.decommits, 1u);
  EXPECT_EQ(os.releases, 1u);
}

// S0.2
TEST(os_memory, the_default_table_can_be_replaced_for_the_process) {
  test::recording_os os;
  os_memory* const before = set_default_os_memory(&os);
  EXPECT_EQ(&default_os_memory(), &os);
  {
    arena a;
    (void)a.allocate(1);
    EXPECT_EQ(os.reserves, 1u);
    EXPECT_NE(entropy_seed(), entropy_seed());
    os.fail_from = os.calls;
    EXPECT_THROW((void)entropy_seed(), std::runtime_error);
    set_default_os_memory(before);  // the arena goes on with the table it began with
  }
  EXPECT_EQ(os.releases, 1u);
  EXPECT_EQ(&default_os_memory(), &system_memory());
}

// ---- virtual_memory ----

TEST(virtual_memory, ranges_start_at_multiples_of_2_mib) {
  virtual_memory space;
  std::vector<byte_range> ranges;
  for (std::size_t bytes : {std::size_t{1}, 5 * KiB, 3 * MiB, 1 * GiB}) {
    ranges.push_back(space.reserve(1, bytes));
    EXPECT_EQ(ranges.back().begin % (2 * MiB), 0u);
    EXPECT_GE(ranges.back().size, bytes);
    EXPECT_EQ(ranges.back().size % space.granularity(), 0u);
  }
  for (byte_range range : ranges) space.release(range);
}

// S0.2
TEST(virtual_memory, requests_or_disables_huge_pages_as_configured) {
  test::recording_os os;
  for (huge_page_policy policy :
       {huge_page_policy::automatic, huge_page_policy::advise, huge_page_policy::avoid}) {
    virtual_memory space{{.huge_pages = policy}, os};
    const std::size_t advices = os.advices;
    const byte_range range = space.reserve(1, 4 * MiB);
    EXPECT_EQ(os.advices, advices + (policy == huge_page_policy::automatic ? 0 : 1));
    if (policy != huge_page_policy::automatic) EXPECT_EQ(os.last_advice, policy == huge_page_policy::advise);
    space.release(range);
  }
}

TEST(virtual_memory, requests_huge_pages_inside_large_commits_by_default) {
  constexpr std::size_t least = virtual_memory::min_huge_commit_bytes;
  test::recording_os os;
  virtual_memory space{{}, os};
  const byte_range range = space.reserve(1, 4 * least);
  std::uintptr_t end = range.begin;
  const auto commit = [&](std::size_t bytes) { end += space.commit({end, bytes}); };
  commit(least - space.granularity());
  EXPECT_EQ(os.advices, 0u);
  commit(least);  // begins and ends a page before a huge page
  ASSERT_EQ(os.advices, 1u);
  EXPECT_TRUE(os.last_advice);
  EXPECT_EQ(os.last_advised, (byte_range{range.begin + least, least - virtual_memory::range_alignment}));
  space.release(range);
}

TEST(virtual_memory, committed_bytes_read_as_zero_also_after_decommit) {
  virtual_memory space;
  const byte_range range = space.reserve(1, 1 * MiB);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(space.commit(range));
    auto* bytes = static_cast<unsigned char*>(range.data());
    EXPECT_EQ(bytes[0], 0);
    EXPECT_EQ(bytes[range.size - 1], 0);
    std::memset(bytes, 0xFF, range.size);
    ASSERT_TRUE(space.decommit(range));
  }
  space.release(range);
}

// S0.1
TEST(virtual_memory, reserved_bytes_cannot_be_touched_before_they_are_committed) {
  virtual_memory space;
  const byte_range range = space.reserve(1, 1 * MiB);
  EXPECT_DEATH(*static_cast<char volatile*>(range.data()) = 1, "");
  space.release(range);
}

// ---- borrowed_memory ----

TEST(borrowed_memory, an_arena_uses_the_callers_range_and_nothing_else) {
  alignas(64) std::array<std::byte, 1024> buffer;
  borrowed_arena a{buffer.data(), buffer.size()};
  auto* const first = static_cast<std::byte*>(a.push_bytes(1000));
  EXPECT_EQ(first, buffer.data());
  EXPECT_THROW((void)a.allocate(100), out_of_memory);
  EXPECT_EQ(a.try_allocate(16), buffer.data() + 1008);
  a.reset();
  EXPECT_EQ(a.stats().reserved_bytes, 1024u);
  a.release();
  EXPECT_EQ(a.allocate(16), buffer.data());
}

TEST(borrowed_memory, addresses_of_a_device_are_computed_and_never_touched) {
  constexpr std::uintptr_t base = 0x1'0000'0000;
  borrowed_device_arena a{borrowed_device_memory{byte_range{base, 1 * MiB}}};
  EXPECT_EQ(address(a.allocate(100)), base);
  EXPECT_EQ(address(a.allocate(512)), base + 256);
  const arena_mark mark = a.mark();
  EXPECT_EQ(address(a.push_array<float>(1, uninitialized).data()), base + 768);
  EXPECT_EQ(address(a.push<double>(uninitialized)), base + 1024);
  a.rewind(mark);
  {
    borrowed_device_arena::scope scope{a};
    EXPECT_EQ(address(scope.allocate(1)), base + 768);
  }
  EXPECT_THROW((void)a.allocate(2 * MiB), out_of_memory);
  EXPECT_EQ(a.position(), 768u);
  a.check_invariants();
}

TEST(borrowed_memory, never_returns_address_zero) {
  borrowed_device_arena a{borrowed_device_memory{byte_range{0, 1 * MiB}}};
  EXPECT_EQ(address(a.allocate(1)), 256u);
}

TEST(borrowed_memory, a_range_at_the_very_top_of_the_address_space_does_not_wrap) {
  constexpr std::size_t size = 64 * KiB;
  const std::uintptr_t base = std::numeric_limits<std::uintptr_t>::max() - size + 1;
  borrowed_device_arena a{borrowed_device_memory{byte_range{base, size}}};
  EXPECT_EQ(a.try_allocate(1), nullptr);
  EXPECT_EQ(a.try_allocate(1 * GiB), nullptr);
}

// ---- an address space of one's own ----

/// Memory that keeps its contents over decommit, like a device's.
struct dirty_memory {
  static constexpr space_traits traits{.commits = true, .block_alignment = 32, .chunk_growth = 3};
  byte_range reserve(std::size_t least, std::size_t wanted) {
    const std::size_t bytes = std::max(least, wanted);
    void* first = ::operator new(bytes, std::align_val_t{4096});
    std::memset(first, 0xAB, bytes);
    return {reinterpret_cast<std::uintptr_t>(first), bytes};
  }
  std::size_t commit(byte_range part, std::size_t) noexcept { return part.size; }
  bool decommit(byte_range) noexcept { return true; }
  void release(byte_range range) noexcept { ::operator delete(range.data(), std::align_val_t{4096}); }
  std::size_t chunk_bytes() const noexcept { return 64 * KiB; }
  std::size_t granularity() const noexcept { return 4096; }
};
static_assert(address_space<dirty_memory>);

TEST(address_space, zeroes_fresh_memory_that_is_not_zero) {
  basic_arena<dirty_memory> a;
  for (int round = 0; round < 3; ++round) {
    const std::span<int> x = a.push_array<int>(10'000);
    EXPECT_EQ(std::count(x.begin(), x.end(), 0), 10'000);
    EXPECT_EQ(address(x.data()) % 32, 0u);
    std::fill(x.begin(), x.end(), 7);
    a.reset();
    if (round == 1) (void)a.trim();
  }
  (void)a.allocate(60 * KiB);
  (void)a.allocate(60 * KiB);
  EXPECT_EQ(a.stats().reserved_bytes, 64 * KiB + 3 * 64 * KiB);
  a.check_invariants();
}

// ---- upstream_memory ----

TEST(upstream_memory, takes_a_first_device_chunk_of_2_mib_or_the_configured_size) {
  test::made_up_memory device;
  test::recording_resource upstream{&device};
  upstream_device_arena a{&upstream};
  (void)a.allocate(1);
  EXPECT_EQ(upstream.outstanding, 2 * MiB);
  upstream_device_arena b{std::size_t{8 * MiB}, &upstream};
  (void)b.allocate(1);
  EXPECT_EQ(upstream.outstanding, 10 * MiB);
}

// D.6
TEST(upstream_memory, uses_every_byte_of_an_unaligned_first_buffer) {
  alignas(16) std::array<std::byte, 32> buffer;
  for (std::size_t begin = 0; begin < 16; ++begin) {
    upstream_arena a{buffer.data() + begin, std::size_t{10}, std::pmr::null_memory_resource()};
    EXPECT_EQ(a.allocate(7, 1), buffer.data() + begin);
    EXPECT_EQ(a.allocate(3, 1), buffer.data() + begin + 7);
    EXPECT_THROW((void)a.allocate(1, 1), std::bad_alloc);
    a.check_invariants();
    a.release();
    EXPECT_EQ(a.allocate(10, 1), buffer.data() + begin);
  }
}

// D.6
TEST(upstream_memory, aligns_a_block_as_requested_and_to_16_by_default) {
  alignas(64) std::array<std::byte, 128> buffer;
  upstream_arena a{buffer.data(), buffer.size(), std::pmr::null_memory_resource()};
  EXPECT_EQ(a.allocate(1, 1), buffer.data());
  EXPECT_EQ(a.allocate(1, 1), buffer.data() + 1);
  EXPECT_EQ(a.allocate(1, 4), buffer.data() + 4);
  EXPECT_EQ(a.allocate(1, 1), buffer.data() + 5);
  EXPECT_EQ(a.allocate(1), buffer.data() + 16);
  EXPECT_EQ(a.allocate(1, 64), buffer.data() + 64);
  EXPECT_EQ(a.position(), 65u);
  EXPECT_EQ(*a.push<double>(1.0), 1.0);
  EXPECT_EQ(a.position(), 80u);
}

TEST(upstream_memory, keeps_a_misaligned_buffer_for_later_blocks) {
  alignas(64) std::array<std::byte, 64> buffer;
  test::recording_resource upstream;
  upstream_arena a{buffer.data() + 8, std::size_t{32}, &upstream};
  EXPECT_TRUE(upstream.holds(a.allocate(32, 16)));
  upstream_arena b{buffer.data() + 8, std::size_t{32}, &upstream};
  EXPECT_EQ(b.allocate(24, 16), buffer.data() + 16);
}

TEST(upstream_memory, reclaims_the_newest_block_without_the_padding_before_it) {
  upstream_arena a;
  void* const text = a.allocate(31, 1);
  void* const numbers = a.allocate(64, 8);
  a.deallocate(numbers, 64, 8);
  EXPECT_EQ(a.position(), 32u);
  a.deallocate(text, 31, 1);
  EXPECT_EQ(a.position(), 32u) << "it does not end at the cursor";
  EXPECT_EQ(a.allocate(64, 8), numbers);
  a.check_invariants();
}

// S0.36
TEST(upstream_memory, has_the_constructors_and_members_of_the_monotonic_resource) {
  test::recording_resource upstream;
  std::array<std::byte, 64> buffer;
  const auto fill = [](auto& resource) {
    std::pmr::vector<int> v{&resource};
    for (int i = 0; i < 1000; ++i) v.push_back(i);
    return v[999];
  };
  const auto exercise = [&]<class Resource>(std::type_identity<Resource>) {
    Resource a;
    Resource b{&upstream};
    Resource c{std::size_t{10'000}};
    Resource d{std::size_t{10'000}, &upstream};
    Resource e{buffer.data(), buffer.size()};
    Resource f{buffer.data() + 32, buffer.size() - 32, &upstream};
    EXPECT_EQ(fill(a) + fill(b) + fill(c) + fill(d) + fill(e) + fill(f), 6 * 999);
    EXPECT_EQ(b.upstream_resource(), &upstream);
    b.release();
    EXPECT_EQ(fill(b), 999);
  };
  exercise(std::type_identity<std::pmr::monotonic_buffer_resource>{});
  exercise(std::type_identity<upstream_arena>{});
}

TEST(upstream_memory, doubles_chunks_independently_of_large_requests) {
  test::recording_resource upstream;
  upstream_arena a{&upstream};
  (void)a.allocate(1);
  EXPECT_EQ(upstream.outstanding, 4 * KiB);
  (void)a.allocate(1 * MiB);  // in place of a chunk of 8 KiB
  EXPECT_EQ(upstream.outstanding, 4 * KiB + 1 * MiB);
  (void)a.allocate(16);
  EXPECT_EQ(upstream.outstanding, 4 * KiB + 1 * MiB + 16 * KiB);
}

}  // namespace
}  // namespace tidemark
