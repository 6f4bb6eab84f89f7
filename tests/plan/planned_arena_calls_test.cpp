// SPDX-License-Identifier: Apache-2.0
// Strategy: a thread calls a planned arena while another thread's call is in the fallback.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

#include <tidemark/plan/replay/planned_arena.hpp>

#include "calling_upstream.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

// P.37
TEST(planned_arena_calls, from_two_threads_at_once_are_reported) {
  if (check_level < 2) GTEST_SKIP() << "only level 2 checks this";
  for (const bool frees : {false, true}) {
    const violation_recorder violations;
    calling_upstream fallback;
    planned_arena memory{&fallback};
    void* const held = memory.allocate(100);
    bool is_interrupted = false;
    fallback.on_allocate = [&] {
      if (std::exchange(is_interrupted, true)) return;
      std::thread{[&] { memory.deallocate(frees ? held : memory.allocate(100), 100); }}.join();
    };
    memory.deallocate(memory.allocate(100), 100);
    ASSERT_GE(violation_recorder::reports().size(), 1u);
    EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::wrong_thread);
    EXPECT_EQ(violation_recorder::reports()[0].message,
              std::string{"planned_arena 'planned_arena': "} + (frees ? "deallocate" : "allocate") +
                  " while another thread is in a call: it is for one thread at a time");
    if (!frees) memory.deallocate(held, 100);
  }
}

// P.37
TEST(planned_arena_calls, from_threads_that_take_turns_are_not_reported) {
  const violation_recorder violations;
  planned_arena memory;
  for (int i = 0; i < 3; ++i) {
    std::thread{[&] {
      const planned_arena::step here{memory};
      memory.deallocate(memory.allocate(100), 100);
    }}.join();
  }
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
  EXPECT_EQ(memory.stats().planned_steps, 2u);
}

}  // namespace
}  // namespace tidemark::test
