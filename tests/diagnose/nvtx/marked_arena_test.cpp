// SPDX-License-Identifier: Apache-2.0
// Strategy: arenas over synthetic device memory, in one piece and in steps, report to a tool that knows the
// rules. Each way in which an arena takes memory back has its test. Then random arenas are compared with the
// allocations that the test knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include <tidemark/arena/arena.hpp>

#include "seeds.hpp"
#include "stepwise_memory.hpp"
#include "strict_tool.hpp"

namespace {

using namespace tidemark;
using test::stepwise_memory;
using test::stepwise_supply;
using test::strict_tool;
using stepwise_arena = basic_arena<stepwise_memory>;
using regions_type = strict_tool::regions_type;
using heaps_type = std::vector<strict_tool::heap>;

constexpr std::uintptr_t lent_first = std::uintptr_t{1} << 62;
constexpr std::size_t lent_bytes = 64 * KiB;

std::uintptr_t address(void const* block) { return reinterpret_cast<std::uintptr_t>(block); }

/// An arena over one range of a device.
class marked_arena : public ::testing::Test {
 protected:
  strict_tool tool;
  borrowed_device_arena arena{borrowed_device_memory{{lent_first, lent_bytes}}, {.name = "step"}};
};

/// An arena over device memory that is committed in steps. Only its first chunk is large.
class marked_stepwise_arena : public ::testing::Test {
 protected:
  strict_tool tool;
  stepwise_supply supply{tool};
  std::optional<stepwise_arena> made{
      std::in_place, stepwise_memory{supply},
      arena_options{.reserve = 64 * KiB, .commit_step = 8 * KiB, .name = "step"}};
  stepwise_arena& arena = *made;
};

TEST_F(marked_arena, is_a_heap_of_its_name_and_of_all_its_memory) {
  EXPECT_EQ(tool.heaps(), (heaps_type{{lent_first, lent_bytes, "step"}}));
  EXPECT_TRUE(tool.regions().empty());
}

TEST_F(marked_arena, reports_blocks_of_every_allocation_function) {
  const std::uintptr_t slow = address(arena.allocate(10, 4 * KiB));
  const std::uintptr_t tried = address(arena.try_allocate(20));
  const std::uintptr_t pushed = address(arena.push_array<float>(5, uninitialized).data());
  const std::uintptr_t virtually = address(static_cast<std::pmr::memory_resource&>(arena).allocate(30));
  EXPECT_EQ(tool.regions(), (regions_type{{slow, 10}, {tried, 20}, {pushed, 20}, {virtually, 30}}));
}

TEST(marked_host_arena, reports_nothing_because_other_tools_watch_the_host) {
  strict_tool tool;
  {
    arena host{{.reserve = 1 * MiB}};
    (void)host.push_array<int>(100);
    host.reset();
  }
  EXPECT_TRUE(tool.calls.empty());
}

TEST_F(marked_stepwise_arena, has_a_heap_of_all_steps_of_a_chunk) {
  EXPECT_TRUE(tool.heaps().empty()) << "no memory is behind it";
  const std::uintptr_t first = address(arena.allocate(100));
  EXPECT_EQ(tool.heaps(), (heaps_type{{first, 8 * KiB, "step"}}));
  (void)arena.allocate(10'000);
  EXPECT_EQ(tool.heaps(), (heaps_type{{first, 16 * KiB, "step"}}));
}

TEST_F(marked_stepwise_arena, opens_heaps_again_if_suspend_fails) {
  (void)arena.allocate(1000);
  (void)arena.allocate(10'000);
  const regions_type before = tool.reachable();
  supply.suspends = false;
  EXPECT_THROW(arena.suspend(), std::runtime_error);
  EXPECT_EQ(tool.reachable(), before);
}

TEST_F(marked_stepwise_arena, reports_nothing_if_a_commit_fails) {
  supply.commits = false;
  EXPECT_EQ(arena.try_allocate(100), nullptr);
  EXPECT_TRUE(tool.heaps().empty());
  supply.commits = true;
  EXPECT_NE(arena.try_allocate(100), nullptr);
}

/// An arena, compared with a record of its blocks by their positions.
class marks_model {
 public:
  explicit marks_model(std::uint64_t seed) : random_{seed} {}

  void step() {
    switch (draw(16)) {
      case 0:
        if (!blocks_.empty()) deallocate();
        break;
      case 1:
        if (!blocks_.empty()) expand();
        break;
      case 2:
        marks_.push_back(arena_.mark());
        break;
      case 3:
        rewind();
        break;
      case 4:
        arena_.pop(draw(3000));
        break;
      case 5:
        if (draw(8) == 0) supply_.decommits = draw(4) != 0;
        (void)arena_.trim(draw(3) * 10'000);
        break;
      case 6:
        if (draw(20) == 0) arena_.reset();
        else if (draw(40) == 0) arena_.release();
        else if (draw(10) == 0) while_suspended();
        break;
      case 7:
        in_a_scope();
        break;
      default:
        allocate();
        break;
    }
    forget();
  }

  void check_contents() {
    regions_type expected;
    for (auto const& [begin, block] : blocks_) {
      if (block.bytes != 0) expected.emplace(block.first, block.bytes);
    }
    // A block in two heaps is two regions.
    EXPECT_EQ(tool_.reachable(), strict_tool::merged(expected));
    arena_.check_invariants();
  }

 private:
  struct block {
    std::uintptr_t first;
    std::size_t bytes;
  };

  std::size_t draw(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_); }
  static std::size_t rounded(std::size_t bytes) {
    return detail::align_up(bytes + (bytes == 0), std::size_t{256});
  }

  void allocate() {
    const std::size_t bytes = draw(10) == 0 ? draw(30'000) : draw(10) == 0 ? 0 : draw(1000);
    const std::size_t align = draw(10) == 0 ? 1024 : 256;
    void* const made = arena_.allocate(bytes, align);
    blocks_.insert_or_assign(arena_.position() - rounded(bytes), block{address(made), bytes});
  }
  void deallocate() {
    block const& newest = blocks_.rbegin()->second;
    arena_.deallocate(reinterpret_cast<void*>(newest.first), newest.bytes);
  }
  void expand() {
    block& newest = blocks_.rbegin()->second;
    const std::size_t bytes = draw(4) == 0 ? 0 : draw(5000);
    if (arena_.expand(reinterpret_cast<void*>(newest.first), newest.bytes, bytes)) newest.bytes = bytes;
  }
  void rewind() {
    if (marks_.empty()) return;
    marks_.resize(1 + draw(marks_.size()));
    try {
      arena_.rewind(marks_.back());
    } catch (std::invalid_argument const&) {  // a pop or a reset went below it
      marks_.pop_back();
    }
  }
  void in_a_scope() {
    const std::size_t before = arena_.position();
    {
      stepwise_arena::scope scope{arena_};
      for (std::size_t n = draw(5); n > 0; --n) allocate();
      check_contents();
    }
    EXPECT_EQ(arena_.position(), before);
  }
  void while_suspended() {
    arena_.suspend();
    if (draw(2) == 0) rewind();
    forget();
    if (!blocks_.empty()) deallocate();
    forget();
    const std::size_t bytes = draw(1000);
    if (void* const made = arena_.try_allocate(bytes)) {  // if it has memory for it
      blocks_.insert_or_assign(arena_.position() - rounded(bytes), block{address(made), bytes});
    }
    EXPECT_TRUE(tool_.regions().empty());
    arena_.resume();
  }
  void forget() {
    blocks_.erase(blocks_.lower_bound(arena_.position()), blocks_.end());
    if (blocks_.empty()) return;
    auto& [begin, newest] = *blocks_.rbegin();
    newest.bytes = std::min(newest.bytes, arena_.position() - begin);  // a pop may have cut it
  }

  std::mt19937_64 random_;
  strict_tool tool_;
  stepwise_supply supply_{tool_};
  stepwise_arena arena_{stepwise_memory{supply_},
                        arena_options{.reserve = 64 * KiB, .commit_step = 8 * KiB, .retain = 256 * KiB}};
  std::map<std::size_t, block> blocks_;
  std::vector<arena_mark> marks_;
};

TEST(marks_model, agrees_with_the_tool_on_allocated_bytes) {
  test::run_for_seeds([](std::uint64_t seed, auto const& run) {
    marks_model model{seed};
    run(model);
  });
}

}  // namespace
