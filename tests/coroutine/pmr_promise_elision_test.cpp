// SPDX-License-Identifier: Apache-2.0
// Strategy: optimized coroutines that clang can elide into their caller's frame, over a counting resource.
// g++ elides no frame, not even without the base.
#include <gtest/gtest.h>

#include <tidemark/coroutine/pmr_promise.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

#include "coroutines.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

#if defined(__clang__)
constexpr bool compiler_elides = !detail::tools_are_notified && !detail::thread_sanitizer_is_on;
#else
constexpr bool compiler_elides = false;
#endif

generator<int> count_to(std::allocator_arg_t, frame_resource, int n) {
  for (int i = 1; i <= n; ++i) co_yield i;
}

// E.2
TEST(pmr_promise_elision, allocates_no_frame_that_does_not_leave_its_caller) {
  if (!compiler_elides) GTEST_SKIP() << "only clang elides frames, and not under sanitizers or Valgrind";
  recording_resource memory;
  int sum = 0;
  for (int value : count_to(std::allocator_arg, memory, 4)) sum += value;
  EXPECT_EQ(sum, 10);
  EXPECT_EQ(memory.calls, 0u);
}

}  // namespace
}  // namespace tidemark::test
