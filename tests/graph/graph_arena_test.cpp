// SPDX-License-Identifier: Apache-2.0
// Strategy: graph arenas over a made-up range, as over a device's memory: an access to a block crashes. The
// tests compare exact addresses and counts, the state before and after every refusal, and the invariants.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "graph_subjects.hpp"
#include "made_up_addresses.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// Hidden from the compiler, which would warn otherwise.
std::size_t hidden(std::size_t value) {
  std::size_t volatile unseen = value;
  return unseen;
}

/// All that a user can see of an arena, but for the count of refusals.
std::vector<std::size_t> state(graph_arena const& arena) {
  std::vector<std::size_t> all = graph_arena_subject::state_of(arena);
  all.erase(all.begin() + 2);
  all.insert(all.end(), {arena.stats().reserved_bytes, arena.range().begin, arena.range().size});
  return all;
}

/// Over made-up addresses, and every test ends with invariants that hold.
struct graph_arenas : ::testing::Test {
  violation_recorder violations;
  recording_resource upstream;

  static void expect_sound(graph_arena const& arena) {
    const std::size_t before = violation_recorder::reports().size();
    arena.check_invariants();
    ASSERT_EQ(violation_recorder::reports().size(), before) << violation_recorder::reports().back().message;
  }
  static void expect_no_report() {
    EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  }
};

// ---- addresses of blocks ----------------------------------------------------------------------------------

// S1.1 S1.3
TEST_F(graph_arenas, return_the_exact_sequence_of_addresses_and_high_waters) {
  graph_arena arena{byte_range{base, 4 * KiB}};
  void* const first = arena.allocate(100);
  EXPECT_EQ(address_of(first), base);
  EXPECT_EQ(arena.high_water_bytes(), 256u);
  void* const second = arena.allocate(512);
  EXPECT_EQ(address_of(second), base + 256);
  EXPECT_EQ(arena.high_water_bytes(), 768u);
  arena.deallocate(second, 512);
  EXPECT_EQ(arena.high_water_bytes(), 768u);
  EXPECT_EQ(address_of(arena.allocate(256)), base + 768);
  EXPECT_EQ(arena.high_water_bytes(), 1024u);
  expect_sound(arena);
  expect_no_report();
}

// S1.1
TEST_F(graph_arenas, the_ends_of_a_range_are_rounded_inwards) {
  EXPECT_EQ((graph_arena{byte_range{base + 1, 1024}}.range()), (byte_range{base + 256, 768}));
  EXPECT_EQ((graph_arena{byte_range{base, 1023}}.range()), (byte_range{base, 768}));
  EXPECT_EQ((graph_arena{byte_range{0, 1024}}.range()), (byte_range{256, 768})) << "no block is null";
  EXPECT_EQ((graph_arena{byte_range{base + 255, 257}}.range()), (byte_range{base + 256, 256}));
  graph_arena arena{byte_range{base + 1, 1024}};
  EXPECT_EQ(address_of(arena.allocate(768)), base + 256);
  EXPECT_THROW((void)arena.allocate(0), out_of_memory);
}

TEST_F(graph_arenas, a_range_too_small_for_a_block_holds_no_block) {
  for (byte_range const& range :
       {byte_range{}, {base, 0}, {base, 255}, {base + 1, 510}, {max_size, 1}, {max_size - 300, 44}}) {
    graph_arena arena{range};
    EXPECT_EQ(arena.range().size, 0u) << range.begin;
    EXPECT_THROW((void)arena.allocate(0), out_of_memory);
    EXPECT_THROW((void)arena.allocate(1, 4096), out_of_memory);
    EXPECT_FALSE(arena.owns(block_at(range.begin)));
    expect_sound(arena);
  }
}

// S1.5
TEST_F(graph_arenas, own_every_address_from_the_first_to_the_last_byte_of_the_range) {
  const graph_arena arena{byte_range{base, 1024}};
  EXPECT_TRUE(arena.owns(block_at(base)));
  EXPECT_TRUE(arena.owns(block_at(base + 1023)));
  EXPECT_FALSE(arena.owns(block_at(base - 1)));
  EXPECT_FALSE(arena.owns(block_at(base + 1024)));
  EXPECT_FALSE(arena.owns(nullptr));
}

// ---- when it is full --------------------------------------------------------------------------------------

// S1.6
TEST_F(graph_arenas, an_exact_fill_succeeds_and_a_byte_more_fails) {
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{1}}) {
    graph_arena arena{byte_range{base, 1024}};
    EXPECT_THROW((void)arena.allocate(1025), out_of_memory);
    for (std::size_t filled = 0; filled < 1024; filled += std::max<std::size_t>(bytes, 256))
      EXPECT_EQ(address_of(arena.allocate(bytes)), base + filled);
    const std::vector<std::size_t> full = state(arena);
    EXPECT_THROW((void)arena.allocate(1), out_of_memory);
    EXPECT_THROW((void)arena.allocate(0), out_of_memory);
    EXPECT_EQ(state(arena), full);
    expect_sound(arena);
  }
}

// S1.6
TEST_F(graph_arenas, throw_an_error_with_the_request_and_the_free_bytes) {
  graph_arena arena{byte_range{base, 4 * KiB}, {.name = "step"}};
  (void)arena.allocate(700);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)arena.allocate(4000, 512); });
  EXPECT_STREQ(error.report().resource, "step");
  EXPECT_STREQ(arena.stats().name, "step");
  EXPECT_EQ(error.report().requested_bytes, 4000u);
  EXPECT_EQ(error.report().alignment, 512u);
  EXPECT_EQ(error.report().used_bytes, 768u);
  EXPECT_EQ(error.report().committed_bytes, 4096u);
  EXPECT_EQ(error.report().reserved_bytes, 4096u);
  EXPECT_EQ(error.report().largest_bytes, 3072u) << "from the next multiple of 512 on";
  EXPECT_PRED2(contains, error.what(), "4000 bytes");
  EXPECT_EQ(address_of(arena.allocate(3072, 512)), base + 1024) << "the reported free bytes fit";
}

TEST_F(graph_arenas, advise_to_rehearse_again_if_a_capture_needs_more_than_its_rehearsal) {
  const auto advice = [](graph_arena&& arena) {
    const std::string text = caught<out_of_memory>([&] { (void)arena.allocate(4000); }).what();
    return text.find("; the rehearsal needed less: rehearse again with the same inputs") != std::string::npos;
  };
  EXPECT_TRUE(advice(graph_arena{graph_layout{.bytes = 1 * KiB}, &upstream}));
  EXPECT_TRUE(advice(graph_arena{step_plan{}, 1 * KiB, &upstream}));
  EXPECT_FALSE(advice(graph_arena{1 * KiB, &upstream}));
}

// S1.7
TEST_F(graph_arenas, sizes_near_size_max_are_refused_at_every_alignment) {
  // The second range ends at the last address, so that every sum of an address and a size could wrap.
  for (const std::uintptr_t begin : {base, std::uintptr_t{0} - 8 * KiB}) {
    graph_arena arena{byte_range{begin, 8 * KiB}};
    (void)arena.allocate(1);
    const std::vector<std::size_t> before = state(arena);
    for (std::size_t align = 1; align != 0; align *= 2) {
      for (const std::size_t less :
           {std::size_t{0}, std::size_t{1}, std::size_t{254}, std::size_t{255}, std::size_t{256},
            std::size_t{257}, 8 * KiB, max_size / 4, max_size / 2, max_size - 8 * KiB}) {
        try {
          (void)arena.allocate(max_size - less, align);
          ADD_FAILURE() << max_size - less << " bytes aligned to " << align;
        } catch (out_of_memory const& error) {
          EXPECT_EQ(error.report().requested_bytes, max_size - less);
        }
      }
    }
    EXPECT_EQ(state(arena), before);
    expect_sound(arena);
  }
}

// S1.7
TEST_F(graph_arenas, leave_the_last_granule_of_the_address_space_unused) {
  // The end of the last granule would be address 0.
  graph_arena arena{byte_range{std::uintptr_t{0} - 1024, 1024}};
  EXPECT_EQ(arena.range().size, 768u);
  void* last = nullptr;
  for (int i = 0; i < 3; ++i) last = arena.allocate(256);
  EXPECT_EQ(address_of(last), std::uintptr_t{0} - 512);
  EXPECT_THROW((void)arena.allocate(1), out_of_memory);
  EXPECT_FALSE(arena.owns(block_at(std::uintptr_t{0} - 256)));
  arena.deallocate(last, 256);
  expect_sound(arena);
  expect_no_report();
}

TEST_F(graph_arenas, use_at_most_max_bytes_of_the_whole_address_space) {
  try {
    graph_arena arena{byte_range{base, max_size}};
    EXPECT_EQ(arena.range(), (byte_range{base, graph_arena::max_bytes}));
    void* const all = arena.allocate(graph_arena::max_bytes);
    EXPECT_EQ(arena.stats().used_bytes, graph_arena::max_bytes) << "the count of its granules fits";
    arena.deallocate(all, graph_arena::max_bytes);
    EXPECT_EQ(arena.stats().used_bytes, 0u);
  } catch (std::bad_alloc const&) {
    GTEST_SKIP() << "this machine has no 16 GiB of address space for a table";
  }
}

TEST_F(graph_arenas, reject_an_alignment_that_is_no_power_of_two) {
  graph_arena arena{byte_range{base, 4 * KiB}, {.name = "step"}};
  const std::vector<std::size_t> before = state(arena);
  EXPECT_STREQ(test::caught<std::invalid_argument>([&] { (void)arena.allocate(1, hidden(768)); }).what(),
               "graph_arena 'step': alignment 768 is not a power of two");
  if (check_level >= 2) {
    EXPECT_THROW((void)arena.allocate(1, hidden(3)), std::invalid_argument);
    EXPECT_THROW((void)arena.allocate(1, hidden(0)), std::invalid_argument);
  }
  EXPECT_EQ(state(arena), before);
}

// ---- giving back ------------------------------------------------------------------------------------------

/// An arena with blocks of every kind, and deallocations that it must refuse.
struct bad_deallocations : graph_arenas {
  struct attempt {
    char const* what;
    std::uintptr_t address;
    std::size_t bytes;
    char const* why;
  };
  static constexpr std::size_t size = 4 * KiB;
  graph_arena arena{byte_range{base, size}, {.name = "step"}};

  /// Refused, reported and counted, and nothing else. The model of arenas has those that ignore them.
  void expect_refusals(std::vector<attempt> const& attempts) {
    for (attempt const& bad : attempts) {
      SCOPED_TRACE(bad.what);
      const std::vector<std::size_t> before = state(arena);
      const std::uint64_t refused = arena.stats().bad_deallocations;
      const std::size_t reports = violation_recorder::reports().size();
      arena.deallocate(block_at(bad.address), bad.bytes);
      EXPECT_EQ(state(arena), before);
      EXPECT_EQ(arena.stats().bad_deallocations, refused + 1);
      ASSERT_EQ(violation_recorder::reports().size(), reports + 1);
      violation_recorder::entry const& report = violation_recorder::reports().back();
      EXPECT_EQ(report.kind, violation_kind::bad_deallocate);
      EXPECT_PRED2(begins_with, report.message,
                   "graph_arena 'step': deallocate of " + std::to_string(bad.bytes) + " bytes at 0x");
      EXPECT_PRED2(contains, report.message, bad.why);
      expect_sound(arena);
    }
  }
};

constexpr char const* not_in_use = "no block in use begins there";
constexpr char const* outside = "it lies outside its range";
constexpr char const* other_size = "the block has another size";

// S1.4
TEST_F(bad_deallocations, reject_a_deallocated_block) {
  void* const below = arena.allocate(300);
  void* const top = arena.allocate(300);
  arena.deallocate(below, 300);
  arena.deallocate(top, 300);
  expect_refusals({{"not the topmost", address_of(below), 300, not_in_use},
                   {"the topmost", address_of(top), 300, not_in_use}});
}

// S1.4
TEST_F(bad_deallocations, reject_addresses_that_were_never_allocated) {
  void* const block = arena.allocate(1024);
  (void)arena.allocate(1, 2048);  // behind a gap
  expect_refusals({{"the middle of a block", base + 256, 256, not_in_use},
                   {"all but the first granule of a block", base + 256, 768, not_in_use},
                   {"a byte into a block", base + 1, 1024, not_in_use},
                   {"a byte before the end of a block", base + 1023, 1, not_in_use},
                   {"a gap", base + 1024, 256, not_in_use},
                   {"above the high water", base + 2304, 256, not_in_use},
                   {"the last granule", base + size - 256, 256, not_in_use}});
  arena.deallocate(block, 1024);
  EXPECT_EQ(arena.stats().used_blocks, 1u) << "the block itself can be deallocated all the same";
}

// S1.5
TEST_F(bad_deallocations, reject_addresses_outside_the_range_at_both_ends) {
  void* const first = arena.allocate(256);
  void* const last = arena.allocate(size - 256);
  expect_refusals({{"the byte below", base - 1, 256, outside},
                   {"the granule below", base - 256, 256, outside},
                   {"the first byte above", base + size, 256, outside},
                   {"the granule above that", base + size + 256, 256, outside},
                   {"far below", 256, 256, outside},
                   {"far above", max_size - 255, 256, outside}});
  arena.deallocate(first, 256);
  arena.deallocate(last, size - 256);
  EXPECT_EQ(arena.stats().used_blocks, 0u) << "the range's own first and last blocks are taken";
}

TEST_F(bad_deallocations, reject_a_wrong_size) {
  void* const block = arena.allocate(512);
  const std::uintptr_t address = address_of(block);
  expect_refusals({{"smaller", address, 256, other_size},
                   {"nothing", address, 0, other_size},
                   {"larger", address, 513, other_size},
                   {"larger than the range", address, size + 1, other_size},
                   {"so large that rounding it up wraps to 0", address, max_size, other_size},
                   {"the largest that does not wrap", address, max_size - 255, other_size},
                   {"the same but for bits that a count of granules has no room for", address,
                    (std::size_t{1} << 40) + 512, other_size}});
  arena.deallocate(block, 512);
  EXPECT_EQ(arena.stats().used_blocks, 0u);
  // A block that is not in use has 0 granules, and a size that wraps is also rounded up to 0.
  expect_refusals({{"a size that wraps to 0, of what is not in use", address, max_size, not_in_use}});
}

// S1.31
TEST_F(bad_deallocations, ignore_null) {
  const std::vector<std::size_t> before = state(arena);
  arena.deallocate(nullptr, 0);
  arena.deallocate(nullptr, 256);
  EXPECT_EQ(state(arena), before);
  EXPECT_EQ(arena.stats().bad_deallocations, 0u);
  expect_no_report();
}

// ---- starting again ---------------------------------------------------------------------------------------

// S1.33
TEST_F(graph_arenas, reset_with_blocks_in_use_throws_their_count_and_changes_nothing) {
  graph_arena arena{byte_range{base, 4 * KiB}, {.name = "step"}};
  void* const block = arena.allocate(300);
  (void)arena.allocate(300);
  arena.deallocate(arena.allocate(1), 1);
  const std::vector<std::size_t> before = state(arena);
  const allocator_busy error = test::caught<allocator_busy>([&] { arena.reset(); });
  EXPECT_EQ(error.blocks(), 2u);
  EXPECT_STREQ(error.what(), "graph_arena 'step': reset while 2 blocks are in use");
  EXPECT_EQ(state(arena), before);
  arena.deallocate(block, 300);
  EXPECT_EQ(arena.stats().used_blocks, 1u);
}

// ---- sources of memory ------------------------------------------------------------------------------------

TEST_F(graph_arenas, use_the_default_resource_without_an_upstream) {
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&upstream);
  {
    const graph_arena arena{256};
    EXPECT_EQ(arena.upstream_resource(), &upstream);
    const graph_arena rehearsed{graph_layout{.bytes = 512}};
    EXPECT_EQ(upstream.outstanding, 768u);
    const graph_arena planned{step_plan{}, 1 * KiB};
    EXPECT_EQ(upstream.outstanding, 1792u);
    const graph_arena of_null{graph_layout{.bytes = 512}, nullptr};
    EXPECT_EQ(of_null.upstream_resource(), &upstream);
  }
  std::pmr::set_default_resource(before);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(graph_arenas, arena_for_a_layout_has_its_size_and_alignment_and_expects_it) {
  const graph_layout layout{.bytes = 8448, .alignment = 4096, .allocations = 2, .hash = 7};
  graph_arena arena{layout, &upstream};
  EXPECT_EQ(arena.range().size, 8448u);
  EXPECT_EQ(arena.range().begin % 4096, 0u);
  EXPECT_EQ(arena.expected(), layout);
  EXPECT_EQ(arena.layout(), graph_layout{}) << "no block was allocated yet";
}  // the upstream checks size and alignment of returned blocks

TEST_F(graph_arenas, layout_with_an_alignment_below_256_gets_blocks_aligned_to_256) {
  std::array<std::byte, 1024> buffer;
  std::pmr::monotonic_buffer_resource unaligned{buffer.data(), buffer.size(),
                                                std::pmr::null_memory_resource()};
  recording_resource compared{&unaligned};
  (void)unaligned.allocate(1, 1);
  graph_arena arena{graph_layout{.bytes = 512, .alignment = 1}, &compared};
  EXPECT_EQ(arena.range().size, 512u);
  EXPECT_EQ(address_of(arena.allocate(512)) % 256, 0u);
}

TEST_F(graph_arenas, rejects_an_impossible_layout_before_it_calls_the_upstream) {
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 512, .alignment = 0}, &upstream}), std::invalid_argument);
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 512, .alignment = 96}, &upstream}), std::invalid_argument);
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 512, .alignment = 768}, &upstream}), std::invalid_argument);
  for (const std::size_t bytes : {graph_arena::max_bytes + 1, max_size - 256, max_size - 255, max_size}) {
    try {
      const graph_arena arena{bytes, &upstream, {.name = "step"}};
      ADD_FAILURE() << bytes;
    } catch (out_of_memory const& error) {
      EXPECT_STREQ(error.report().resource, "step");
      EXPECT_EQ(error.report().requested_bytes, bytes);
      EXPECT_EQ(error.report().largest_bytes, graph_arena::max_bytes);
    }
    EXPECT_THROW((graph_arena{graph_layout{.bytes = bytes}, &upstream}), out_of_memory);
  }
  EXPECT_EQ(upstream.calls, 0u);
}

// ---- on shared memory -------------------------------------------------------------------------------------

TEST_F(graph_arenas, on_a_shared_block_have_equal_addresses_and_the_last_arena_frees_it) {
  auto memory = std::make_shared<unique_block>(&upstream, 4 * KiB, 256);
  void const* const begin = memory->data();
  auto first = std::make_unique<graph_arena>(memory), second = std::make_unique<graph_arena>(memory);
  memory.reset();
  EXPECT_TRUE(first->is_shared());
  EXPECT_EQ(first->range().size, 4 * KiB);
  EXPECT_EQ(first->upstream_resource(), nullptr);
  for (auto* arena : {&first, &second}) {
    void* const block = (*arena)->allocate(4 * KiB);
    EXPECT_EQ(block, begin);
    (*arena)->deallocate(block, 4 * KiB);
    EXPECT_EQ(upstream.outstanding, 4 * KiB);
    arena->reset();
  }
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_FALSE((graph_arena{4 * KiB, &upstream}.is_shared()));
}

TEST_F(graph_arenas, on_shared_memory_expect_the_rehearsed_layout_if_it_fits) {
  const auto memory = std::make_shared<unique_block const>(&upstream, 4 * KiB, 256);
  const graph_layout fits{.bytes = 4 * KiB, .alignment = 256, .allocations = 1, .hash = 1};
  EXPECT_EQ((graph_arena{fits, memory}.expected()), fits);
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 4 * KiB + 256}, memory}), out_of_memory);
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 256, .alignment = 64 * MiB}, memory}), out_of_memory);
  EXPECT_THROW((graph_arena{graph_layout{.bytes = 256, .alignment = 3}, memory}), std::invalid_argument);
  EXPECT_THROW((graph_arena{std::shared_ptr<unique_block const>{}}), std::invalid_argument);
  EXPECT_THROW((graph_arena{std::make_shared<unique_block const>()}), std::invalid_argument);
}

TEST_F(graph_arenas, on_shared_memory_follow_a_plan) {
  const step_plan plan = rehearse_plan([](std::pmr::memory_resource& given) {
    given.deallocate(given.allocate(1024), 1024);
    given.deallocate(given.allocate(1024), 1024);
  });
  const auto memory = std::make_shared<unique_block const>(&upstream, 4 * KiB, 256);
  graph_arena arena{plan, memory};
  EXPECT_TRUE(arena.is_planned());
  void* const block = arena.allocate(1024);
  arena.deallocate(block, 1024);
  EXPECT_EQ(arena.allocate(1024), block);
  arena.deallocate(block, 1024);
  arena.deallocate(arena.allocate(3 * KiB), 3 * KiB);  // the tail
  EXPECT_EQ(arena.layout().allocations, 3u);
  const auto small = std::make_shared<unique_block const>(&upstream, 512, 256);
  EXPECT_THROW((graph_arena{plan, small}), out_of_memory);
}

}  // namespace
}  // namespace tidemark::test
