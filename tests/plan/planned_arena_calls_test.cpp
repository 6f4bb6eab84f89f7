// SPDX-License-Identifier: Apache-2.0
// Strategy: a thread calls a planned arena while another thread's call is in the fallback.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/plan/replay/planned_arena.hpp>

#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// Lets another thread in, once, while the arena's call waits for it.
class interrupted_fallback final : public std::pmr::memory_resource {
 public:
  planned_arena* arena = nullptr;
  bool frees = false;
  void* held = nullptr;  ///< the block that the other thread frees

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (planned_arena* const called = std::exchange(arena, nullptr)) {
      std::thread{[&] {
        if (frees) called->deallocate(held, 100);
        else called->deallocate(called->allocate(100), 100);
      }}.join();
    }
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

// P.37
TEST(planned_arena_calls, of_two_threads_at_once_are_reported) {
  if (check_level < 2) GTEST_SKIP() << "which only level 2 looks at";
  for (const bool frees : {false, true}) {
    const violation_recorder violations;
    interrupted_fallback fallback;
    planned_arena memory{&fallback};
    fallback.held = memory.allocate(100);
    fallback.arena = &memory;
    fallback.frees = frees;
    memory.deallocate(memory.allocate(100), 100);
    ASSERT_GE(violation_recorder::reports().size(), 1u);
    EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::wrong_thread);
    EXPECT_EQ(violation_recorder::reports()[0].message,
              std::string{"planned_arena 'planned_arena': "} + (frees ? "deallocate" : "allocate") +
                  " while another thread is in a call: it is for one thread at a time");
    if (!frees) memory.deallocate(fallback.held, 100);
  }
}

// P.37
TEST(planned_arena_calls, of_threads_that_take_turns_are_not_reported) {
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
