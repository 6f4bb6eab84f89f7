// SPDX-License-Identifier: Apache-2.0
// Strategy: graph arenas over a made-up range, so that what is shown holds for a device's memory, and who touches a
// block crashes; exact addresses and counts; every refusal with the state before and after.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tidemark/graph_arena.hpp>
#include <tidemark/graph_errors.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/units.hpp>

#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

constexpr std::uintptr_t base = 0x1'0000'0000;

graph_arena made_up(std::size_t bytes, graph_arena_options const& options = {}) {
  return graph_arena{byte_range{base, bytes}, options};
}

std::uintptr_t address_of(void const* block) { return reinterpret_cast<std::uintptr_t>(block); }

TEST(graph_arena, the_exact_sequence_of_addresses_and_high_waters) {
  graph_arena arena = made_up(4 * KiB);
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
}

}  // namespace
}  // namespace tidemark::test
