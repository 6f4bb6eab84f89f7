// SPDX-License-Identifier: Apache-2.0
// Strategy: each member over a resource that checks that it gets back exactly the blocks it returned, once
// each; then over resources of every kind.
#include <tidemark/core/unique_block.hpp>

#include <gtest/gtest.h>

#include <array>
#include <memory_resource>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/telemetry/test_resource.hpp>

#include "logged_upstream.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"

namespace tidemark {
namespace {

using test::recording_resource;

struct unique_blocks : ::testing::Test {
  recording_resource memory;
};

// S1.35
TEST_F(unique_blocks, are_deallocated_at_the_end_of_their_scope) {
  {
    const unique_block block{&memory, 1000};
    EXPECT_TRUE(block);
    EXPECT_TRUE(memory.holds(block.data()));
    EXPECT_EQ(block.bytes(), 1000u);
    EXPECT_EQ(memory.outstanding, 1000u);
  }
  EXPECT_EQ(memory.outstanding, 0u);
}

// S1.35
TEST_F(unique_blocks, release_ownership_to_the_caller) {
  void* kept = nullptr;
  {
    unique_block block{&memory, 1000, 128};
    kept = block.release();
    EXPECT_FALSE(block);
    EXPECT_EQ(block.data(), nullptr);
    EXPECT_EQ(block.bytes(), 0u);
    EXPECT_TRUE(block.as<int>().empty());
    EXPECT_EQ(block.release(), nullptr) << "once";
  }
  EXPECT_TRUE(memory.holds(kept));
  memory.deallocate(kept, 1000, 128);
}

// S1.37
TEST_F(unique_blocks, keep_the_contents_from_their_resource) {
  // A test_resource fills the blocks it returns.
  test_resource filling{&memory};
  const unique_block block{&filling, 1000};
  for (const unsigned char byte : block.as<unsigned char>()) ASSERT_EQ(byte, test_resource::fresh_fill);
  EXPECT_EQ(block.as<unsigned char>().size(), 1000u);
}

// S1.31
TEST_F(unique_blocks, own_an_allocation_of_0_bytes) {
  const unique_block block{&memory, 0};
  EXPECT_TRUE(block);
  EXPECT_NE(block.data(), nullptr);
  EXPECT_EQ(block.bytes(), 0u);
  EXPECT_EQ(memory.calls, 1u);
}

TEST_F(unique_blocks, hold_and_free_nothing_when_empty) {
  unique_block block;
  EXPECT_FALSE(block);
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.bytes(), 0u);
  EXPECT_EQ(block.alignment(), 64u);
  EXPECT_TRUE(block.as<double>().empty());
  block.reset();
  EXPECT_EQ(block.release(), nullptr);
  const unique_block moved = std::move(block);
  EXPECT_FALSE(moved);
}

TEST_F(unique_blocks, view_as_many_elements_as_fit) {
  const unique_block block{&memory, 30};
  const std::span<int> numbers = block.as<int>();
  EXPECT_EQ(numbers.size(), 7u);
  EXPECT_EQ(static_cast<void*>(numbers.data()), block.data());
  numbers[6] = 5;
  EXPECT_EQ(block.as<int const>()[6], 5);
  EXPECT_TRUE((block.as<std::array<char, 31>>().empty()));
}

// S1.35
TEST_F(unique_blocks, become_empty_when_moved_from) {
  unique_block first{&memory, 1000, 128};
  void* const data = first.data();
  const unique_block second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), 1000u);
  EXPECT_EQ(second.alignment(), 128u);
  EXPECT_EQ(memory.outstanding, 1000u);
}

TEST_F(unique_blocks, use_the_default_resource_for_null) {
  std::optional<test::default_resource_scope> scope{&memory};
  {
    const unique_block block{nullptr, 100};
    EXPECT_TRUE(memory.holds(block.data()));
    scope.reset();
  }  // it knows its resource, although the default has changed
  EXPECT_EQ(memory.outstanding, 0u);
}

static_assert(!std::is_copy_constructible_v<unique_block> && !std::is_copy_assignable_v<unique_block>);
static_assert(std::is_nothrow_move_constructible_v<unique_block> &&
              std::is_nothrow_move_assignable_v<unique_block>);
static_assert(!std::is_convertible_v<unique_block, bool>, "only where a condition is asked for");

}  // namespace
}  // namespace tidemark
