// SPDX-License-Identifier: Apache-2.0
// Strategy: coroutines in a loop, with every call of operator new counted, and every call of the resource;
// and each call of operator new failing in turn.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>

#include <tidemark/tidemark.hpp>

#include "coroutines.hpp"
#include "counting_new.hpp"

namespace tidemark {
namespace {

using test::generator;
using test::max_news;
using test::news;

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
  alignas(16) std::array<std::byte, 4 * KiB> buffer;
  int failures = 0;
  for (bool is_made = false; !is_made; failures += is_made ? 0 : 1) {
    std::pmr::monotonic_buffer_resource memory{buffer.data(), buffer.size(),
                                               std::pmr::null_memory_resource()};
    statistics_resource counted{&memory};
    max_news = news + static_cast<std::size_t>(failures);
    try {
      const generator<int> values = digits(std::allocator_arg, &counted, 10);
      is_made = true;
    } catch (std::bad_alloc const&) {
    }
    max_news = std::numeric_limits<std::size_t>::max();
    EXPECT_EQ(counted.stats().used_blocks, 0u) << "after " << failures << " calls";
  }
  EXPECT_GE(failures, check_level >= 2 ? 1 : 0);
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

// E.2
TEST(pmr_promise_heap, frames_on_a_pool_take_nothing_from_its_upstream_once_warm) {
  statistics_resource upstream;
  pool blocks{&upstream};
  EXPECT_EQ(run_many(blocks), 13500);
  const auto before = upstream.stats().allocations;
  const std::size_t news_before = news;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(run_many(blocks), 13500);
  EXPECT_EQ(upstream.stats().allocations, before);
  // At level 2 and in ASan builds a pool records each of its blocks in the heap.
  if (!detail::records_blocks) EXPECT_EQ(news, news_before);
}

}  // namespace
}  // namespace tidemark
