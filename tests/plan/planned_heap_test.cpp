// SPDX-License-Identifier: Apache-2.0
// Strategy: counts calls of operator new and malloc for operations of a planned arena that promise to make
// none. operator new also fails at each of its calls in turn, once or from then on, while steps are recorded,
// planned, followed and left. Blocks keep their contents, and the arena continues once memory is available
// again.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/core/units.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "counting_new.hpp"
#include "no_heap.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

using few_blocks = test::few_blocks<4 * KiB, 64>;

/// Blocks of one program, by number. Never calls the heap.
class program {
 public:
  explicit program(planned_arena& memory) : memory_{memory} {}
  program(program const&) = delete;
  program& operator=(program const&) = delete;
  ~program() {
    for (std::size_t i = 0; i < held_.size(); ++i) deallocate_block(i);
  }

  void replace_block(std::size_t i, std::size_t bytes) {
    deallocate_block(i);
    try {
      held_[i] = {static_cast<unsigned char*>(memory_.allocate(bytes)), bytes};
      std::memset(held_[i].first, static_cast<int>(i + 1), bytes);
    } catch (std::bad_alloc const&) {
      ++refused;
    }
  }
  void deallocate_block(std::size_t i) {
    const auto [block, bytes] = std::exchange(held_[i], {});
    if (block == nullptr) return;
    for (std::size_t k = 0; k < bytes; ++k) changed += block[k] != i + 1 ? 1u : 0u;
    memory_.deallocate(block, bytes);
  }

  /// Steps of two alternating kinds that begin alike. One block outlives each step (5), one is sometimes
  /// freed late (2), and one is sometimes unknown to the plan (7).
  void step(std::size_t n) {
    try {
      const planned_arena::step here{memory_};
      replace_block(0, 100);
      replace_block(1, 200);
      deallocate_block(0);
      replace_block(2, n % 2 == 0 ? 500 : 800);
      replace_block(5, 100);
      if (n % 7 != 3) deallocate_block(2);
      replace_block(3, 600);
      if (n % 5 == 4) replace_block(7, 900);
      deallocate_block(1);
      deallocate_block(3);
      if (n % 7 != 3) deallocate_block(7);
    } catch (std::bad_alloc const&) {
      ++refused;  // the step was not opened
    }
  }

  std::size_t changed = 0, refused = 0;

 private:
  planned_arena& memory_;
  std::array<std::pair<unsigned char*, std::size_t>, 8> held_{};
};

TEST(planned_heap, steps_that_run_by_their_plans_allocate_nothing) {
  few_blocks fallback;
  planned_arena memory{&fallback};
  program p{memory};
  const auto step = [&](std::size_t bytes) {
    const planned_arena::step here{memory};
    p.replace_block(0, 100);
    p.replace_block(1, bytes);
    p.deallocate_block(0);
    p.replace_block(5, 100);  // lives on
    p.replace_block(3, 2500);
    p.deallocate_block(3);
    p.deallocate_block(1);
  };
  for (int i = 0; i < 2; ++i) step(1000);
  const std::size_t news_before = news, mallocs_before = mallocs;
  for (std::size_t i = 0; i < 100; ++i) step(1000 - i);
  EXPECT_EQ(news, news_before);
  EXPECT_EQ(mallocs, mallocs_before);
  EXPECT_EQ(memory.stats().planned_steps, 100u + 1u);
}

TEST(planned_heap, steps_in_turn_with_late_blocks_allocate_nothing_once_warm) {
  few_blocks fallback;
  planned_arena memory{
      {.max_misses = 1'000'000,
       .fallback = &fallback}};  // what the fallback serves is recorded, but nothing is planned again
  program p{memory};
  const auto step = [&](std::size_t n) {
    const planned_arena::step here{memory};
    for (std::size_t i = 0; i < 4; ++i) p.replace_block(i, n % 2 == 0 ? 500 : 3000);
    if (n % 3 != 0) p.deallocate_block(2);  // or in the next step, of another plan
    for (std::size_t i : {3u, 0u, 1u}) p.deallocate_block(i);
  };
  for (std::size_t i = 0; i < 2; ++i) {
    step(i);
    p.deallocate_block(2);
  }
  for (std::size_t i = 0; i < 12; ++i) step(i);
  const std::uint64_t fallback_before = memory.stats().fallback_allocations;
  const std::size_t news_before = news;
  for (std::size_t i = 12; i < 48; ++i) step(i);
  const std::uint64_t from_fallback = memory.stats().fallback_allocations - fallback_before;
  EXPECT_LE(news - news_before, from_fallback) << "a record for each of these, and nothing else";
}

/// Runs steps in which operator new fails from its n-th call on, permanently or until the end of the step.
/// Then runs steps with memory. @return the calls of the first steps
std::size_t run_without_memory(std::size_t n, bool for_good) {
  few_blocks fallback;
  planned_arena memory{{.max_misses = 3, .fallback = &fallback}};
  program p{memory};
  const std::size_t before = news;
  max_news = before + n;
  for (std::size_t i = 0; i < 12; ++i) {
    p.step(i);
    if (!for_good && news > before + n) max_news = std::numeric_limits<std::size_t>::max();
  }
  max_news = std::numeric_limits<std::size_t>::max();
  const std::size_t calls = news - before;
  memory.check_invariants();
  for (std::size_t i = 12; i < 40; ++i) p.step(i);  // if plans were of no use, some steps run unplanned
  EXPECT_EQ(p.changed, 0u) << "call " << n;
  const std::uint64_t planned = memory.stats().planned_allocations;
  p.step(40);
  EXPECT_GT(memory.stats().planned_allocations, planned) << "call " << n << ": it plans again";
  return calls;
}

TEST(planned_heap, any_call_without_memory_is_survived) {
  const test::violation_recorder violations;
  for (bool for_good : {false, true}) {
    std::size_t n = 0;
    while (run_without_memory(n, for_good) > n) ++n;
    EXPECT_GT(n, 100u) << "calls that failed";
    EXPECT_LT(n, 10'000u);
  }
  EXPECT_TRUE(test::violation_recorder::reports().empty());
}

}  // namespace
}  // namespace tidemark::test
