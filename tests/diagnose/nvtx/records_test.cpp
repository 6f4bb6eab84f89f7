// SPDX-License-Identifier: Apache-2.0
// Strategy: operator new fails when an arena must record a heap or a block, and the arena must reject the
// request as if it had no memory. The tool counts and does not allocate, so only allocations of the arena
// fail.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/arena/arena.hpp>
#include <tidemark/diagnose/detail/listening_tool.hpp>

#include "counting_new.hpp"
#include "no_heap.hpp"
#include "stepwise_memory.hpp"
#include "strict_tool.hpp"

namespace {

using namespace tidemark;

class counting_tool final : public detail::listening_tool {
 public:
  counting_tool() : before_{detail::set_current_tool(this)} {}
  ~counting_tool() { detail::set_current_tool(before_); }

  std::size_t heaps = 0, regions = 0;

  heap_id open_heap(std::uintptr_t, std::size_t, char const*) noexcept override { return ++heaps; }
  void reset_heap(heap_id) noexcept override { regions = 0; }
  void close_heap(heap_id) noexcept override { --heaps; }
  void open_region(heap_id, std::uintptr_t, std::size_t, char const*) noexcept override { ++regions; }
  void resize_region(std::uintptr_t, std::size_t) noexcept override {}
  void close_regions(std::uintptr_t const*, std::size_t n) noexcept override { regions -= n; }

 private:
  detail::listening_tool* before_;
};

borrowed_device_memory device_memory() { return borrowed_device_memory{{std::uintptr_t{1} << 62, 1 * MiB}}; }

/// Returns true if `call` throws `out_of_memory` when no memory is left for records.
template <class Call>
bool is_refused_without_memory(Call call) {
  const test::no_memory guard;
  try {
    call();
    return false;
  } catch (out_of_memory const&) {
    return true;
  }
}

TEST(marks_records, reject_a_block_if_they_cannot_grow) {
  counting_tool tool;
  borrowed_device_arena arena{device_memory()};
  int refused = 0;
  for (std::size_t blocks = 0; blocks < 1000; ++blocks) {
    ASSERT_EQ(tool.regions, blocks);
    const std::size_t position = arena.position();
    if (is_refused_without_memory([&] { (void)arena.allocate(100); })) {
      ++refused;
      ASSERT_EQ(arena.position(), position);
      ASSERT_EQ(tool.regions, blocks);
      (void)arena.allocate(100);
    }
  }
  EXPECT_GT(refused, 2) << "some blocks did not fit into the records";
  EXPECT_LT(refused, 20) << "and most did";
  arena.check_invariants();
}

TEST(marks_records, reserve_a_heap_record_before_memory_is_requested) {
  counting_tool tool;
  std::optional<borrowed_device_arena> arena;
  EXPECT_TRUE(is_refused_without_memory([&] { arena.emplace(device_memory()); }));
  EXPECT_EQ(tool.heaps, 0u);
  arena.emplace(device_memory());
  EXPECT_EQ(tool.heaps, 1u);
  arena->release();
  EXPECT_EQ(tool.heaps, 0u);
  EXPECT_FALSE(is_refused_without_memory([&] { (void)arena->allocate(100); })) << "there was one before";
}

TEST(marks_records, reserve_a_heap_record_before_memory_is_committed) {
  test::strict_tool tool;
  test::stepwise_supply supply{tool};
  basic_arena<test::stepwise_memory> arena{test::stepwise_memory{supply}};
  EXPECT_TRUE(is_refused_without_memory([&] { (void)arena.allocate(100); }));
  EXPECT_EQ(arena.stats().committed_bytes, 0u);
  EXPECT_TRUE(tool.heaps().empty());
  (void)arena.allocate(100);
  EXPECT_EQ(tool.heaps().size(), 1u);
}

TEST(marks_records, cost_a_host_arena_nothing) {
  counting_tool tool;
  const std::size_t before = test::news;
  arena host{{.reserve = 1 * MiB}};
  for (int i = 0; i < 1000; ++i) (void)host.allocate(100);
  EXPECT_EQ(test::news, before);
}

}  // namespace
