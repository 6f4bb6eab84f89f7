// SPDX-License-Identifier: Apache-2.0
// Strategy: the layout of a rehearsal, compared with the layout of an arena for the same body; layouts that
// must be equal, and layouts that must differ. The resource below gets all blocks back after any failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/telemetry/test_resource.hpp>

#include "caught.hpp"
#include "made_up_addresses.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct request {
  std::size_t bytes, align;
};
using requests = std::vector<request>;

/// Allocates them in order.
auto asking_for(requests const& wanted) {
  return [wanted](std::pmr::memory_resource& memory) {
    for (const auto [bytes, align] : wanted) (void)memory.allocate(bytes, align);
  };
}
graph_layout layout_of(requests const& wanted) { return rehearse(asking_for(wanted)); }

/// Sizes and alignments of all kinds, and frees among them. Touches nothing.
void mixed_body(std::pmr::memory_resource& memory, std::uint32_t seed, std::size_t rounds = 300) {
  std::minstd_rand random{seed};
  std::vector<std::pair<void*, request>> live;
  for (std::size_t i = 0; i < rounds; ++i) {
    const request one{random() % 2000, std::size_t{1} << random() % 13};
    live.emplace_back(memory.allocate(one.bytes, one.align), one);
    if (random() % 2 == 0) {
      std::swap(live[random() % live.size()], live.back());
      memory.deallocate(live.back().first, live.back().second.bytes, live.back().second.align);
      live.pop_back();
    }
  }
}

// ---- the size ---------------------------------------------------------------------------------------------

// S1.3
TEST(rehearse, measures_1024_bytes_for_the_documented_sequence) {
  const graph_layout layout = rehearse([](std::pmr::memory_resource& memory) {
    (void)memory.allocate(100);
    void* const second = memory.allocate(512);
    memory.deallocate(second, 512);
    (void)memory.allocate(256);
  });
  EXPECT_EQ(layout.bytes, 1024u);
  EXPECT_EQ(layout.allocations, 3u);
  EXPECT_EQ(layout.alignment, 256u);
}

// ---- the hash ---------------------------------------------------------------------------------------------

TEST(rehearse, hash_distinguishes_sizes_orders_counts_and_alignments) {
  const std::vector<requests> different{
      {},
      {{256, 8}},
      {{512, 8}},
      {{256, 8}, {256, 8}},
      {{256, 8}, {512, 8}},
      {{512, 8}, {256, 8}},
      {{256, 8}, {256, 8}, {256, 8}},
      {{768, 8}},
      {{256, 8}, {256, 512}},
      {{256, 8}, {256, 1024}},
      {{256, 8}, {512, 512}},
      {{512, 8}, {256, 8}, {256, 8}},
      {{256, 8}, {512, 8}, {256, 8}},
      {{256, 8}, {256, 8}, {512, 8}},
  };
  for (std::size_t i = 0; i < different.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(layout_of(different[i]).hash, layout_of(different[j]).hash) << i << " and " << j;
      EXPECT_NE(layout_of(different[i]), layout_of(different[j])) << i << " and " << j;
    }
  }
}

// ---- without memory ---------------------------------------------------------------------------------------

TEST(rehearse, returns_distinct_aligned_addresses_outside_every_process) {
  rehearsal stage;
  std::pmr::memory_resource& memory = stage;
  std::uintptr_t end = 0;
  for (std::size_t align = 1; align <= 1 * GiB; align *= 2) {
    const std::uintptr_t block = address_of(memory.allocate(300, align));
    EXPECT_EQ(block % align, 0u);
    EXPECT_GE(block, end);
    end = block + 300;
    // x86-64: bits 57 to 63 are one and the same. AArch64: the highest byte is ignored, and bit 55 is the
    // system's.
    EXPECT_NE(block >> 57, 0u);
    EXPECT_NE(block >> 57, 127u);
    EXPECT_EQ(block >> 55 & 1u, 1u);
  }
}

TEST(rehearse, throws_out_of_memory_for_requests_beyond_every_arena) {
  constexpr std::size_t max_bytes = graph_arena::max_bytes;
  EXPECT_EQ(layout_of({{max_bytes, 8}}).bytes, max_bytes) << "the maximum";
  for (requests const& wanted :
       {requests{{max_bytes + 1, 8}}, requests{{max_size, 8}}, requests{{max_size - 255, 4096}},
        requests{{1, 8}, {max_bytes, 8}}, requests{{max_bytes, 8}, {0, 8}},
        // Bytes lost to alignment count too.
        requests{{1, 8}, {1, std::size_t{1} << 40}}, requests{{1, 8}, {max_bytes - 4095, 4096}},
        requests{{1, std::size_t{1} << 56}}, requests{{1, std::size_t{1} << 63}}}) {
    rehearsal stage;
    std::pmr::memory_resource& memory = stage;
    for (std::size_t i = 0; i + 1 < wanted.size(); ++i)
      (void)memory.allocate(wanted[i].bytes, wanted[i].align);
    const graph_layout before = stage.layout();
    try {
      (void)memory.allocate(wanted.back().bytes, wanted.back().align);
      ADD_FAILURE() << wanted.back().bytes << " bytes aligned to " << wanted.back().align;
    } catch (out_of_memory const& error) {
      EXPECT_EQ(error.report().requested_bytes, wanted.back().bytes);
      EXPECT_EQ(error.report().alignment, wanted.back().align);
      EXPECT_EQ(error.report().reserved_bytes, max_bytes);
      EXPECT_LT(error.report().largest_bytes, std::max<std::size_t>(wanted.back().bytes, 1));
    }
    EXPECT_EQ(stage.layout(), before);
  }
}

TEST(rehearse, rejects_an_alignment_that_is_no_power_of_two) {
  rehearsal stage;
  std::pmr::memory_resource& memory = stage;
  std::size_t volatile three = 3, none = 0;
  EXPECT_THROW((void)memory.allocate(1, three), std::invalid_argument);
  EXPECT_THROW((void)memory.allocate(1, none), std::invalid_argument);
  EXPECT_EQ(stage.layout(), graph_layout{});
}

TEST(rehearse, reports_a_wrong_deallocation) {
  const violation_recorder violations;
  rehearsal stage;
  std::pmr::memory_resource& memory = stage;
  void* const block = memory.allocate(300);
  memory.deallocate(block, 299);
  memory.deallocate(block, 300, 4096);
  memory.deallocate(reinterpret_cast<void*>(address_of(block) + 256), 44);
  memory.deallocate(block, 300);
  memory.deallocate(block, 300);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 4u);
  EXPECT_EQ(violation_recorder::reports().size(), 4u);
}

// ---- with memory ------------------------------------------------------------------------------------------

TEST(rehearse, body_can_use_memory_of_an_upstream) {
  recording_resource upstream;
  const auto body = [](std::pmr::memory_resource& memory) {
    std::pmr::vector<int> numbers{&memory};
    for (int i = 0; i < 1000; ++i) numbers.push_back(i);
    EXPECT_EQ(numbers[999], 999);
  };
  const graph_layout layout = rehearse(body, &upstream);
  EXPECT_EQ(upstream.calls, layout.allocations);
  EXPECT_EQ(upstream.outstanding, 0u);
  graph_arena arena{layout, &upstream};
  body(arena);
  EXPECT_EQ(arena.layout(), layout) << "the layout is the same with and without memory";
}

TEST(rehearse, destructor_deallocates_blocks_in_use) {
  recording_resource upstream;
  {
    rehearsal stage{&upstream};
    std::pmr::memory_resource& memory = stage;
    (void)memory.allocate(100, 8);
    void* const second = memory.allocate(5000, 4096);
    (void)memory.allocate(0, 1);
    memory.deallocate(second, 5000, 4096);
    EXPECT_EQ(upstream.outstanding, 100u);
  }
  EXPECT_EQ(upstream.outstanding, 0u);
}  // the upstream compares returned blocks with allocated ones

TEST(rehearse, rethrows_the_exception_of_the_body_after_freeing_all_blocks) {
  recording_resource upstream;
  struct own_error {
    int number;
  };
  const own_error error = test::caught<own_error>([&] {
    (void)rehearse(
        [](std::pmr::memory_resource& memory) {
          (void)memory.allocate(100);
          throw own_error{42};
        },
        &upstream);
  });
  EXPECT_EQ(error.number, 42);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST(rehearse, rethrows_every_upstream_failure_and_leaks_nothing) {
  test_resource upstream;
  const std::size_t failures = fail_each_allocation(upstream, [&] {
    (void)rehearse([](std::pmr::memory_resource& memory) { mixed_body(memory, 7, 50); }, &upstream);
  });
  EXPECT_EQ(failures, 50u);
}

// Programs do so, although the declaration in the standard library excludes null.
[[gnu::no_sanitize("undefined")]] void deallocate_null(std::pmr::memory_resource& memory, void* null) {
  memory.deallocate(null, 8);
}

// S1.31
TEST(rehearse, ignores_null) {
  const test::violation_recorder violations;
  const graph_layout layout =
      rehearse([](std::pmr::memory_resource& memory) { deallocate_null(memory, nullptr); });
  EXPECT_EQ(layout, graph_layout{});
  EXPECT_TRUE(violations.reports().empty());
}

}  // namespace
}  // namespace tidemark::test
