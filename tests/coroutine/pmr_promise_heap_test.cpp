// SPDX-License-Identifier: Apache-2.0
// Strategy: coroutines in a loop, with every call of operator new counted; and each call failing in turn.
#include <gtest/gtest.h>

#include <cstddef>

#include <tidemark/tidemark.hpp>

#include "coroutines.hpp"
#include "no_heap.hpp"

namespace tidemark::test {
namespace {

generator<int> digits(std::allocator_arg_t, frame_resource memory, int n) {
  if (n >= 10)
    for (int digit : digits(std::allocator_arg, memory, n / 10)) co_yield digit;
  co_yield n % 10;
}

// The digits of a thousand numbers, in coroutines that are alive at once and one after another.
int run_many(frame_resource memory) {
  int sum = 0;
  for (int n = 0; n < 1000; ++n)
    for (int digit : digits(std::allocator_arg, memory, n)) sum += digit;
  return sum;
}

// The first in its program: at level 2 the first frame makes the table of frames.
TEST(pmr_promise_heap, returns_a_frame_that_cannot_be_recorded) {
  test::few_blocks<4 * KiB, 2> memory;
  const std::size_t failures =
      test::fail_each_new([&] { const auto values = digits(std::allocator_arg, &memory, 10); },
                          [&](bool) { EXPECT_EQ(memory.outstanding, 0u); });
  EXPECT_GE(failures, check_level >= 2 ? 1u : 0u);
}

// E.2
TEST(pmr_promise_heap, frames_on_a_scope_allocate_nothing_once_warm) {
  arena step;
  const auto turn = [&] {
    const arena::scope scope{step};
    return run_many(scope);
  };
  EXPECT_EQ(turn(), 13500);
  const std::size_t before = news;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(turn(), 13500);
  EXPECT_EQ(news, before);
}

}  // namespace
}  // namespace tidemark::test
