// SPDX-License-Identifier: Apache-2.0
// Strategy: run a fixed workload with the n-th call to the source of memory failing, for every n until none
// fails. After a failure the arena must be as it was before the call, must go on, and must leak nothing; so
// must it if all calls from the n-th on fail.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <cstring>

#include "recording_supply.hpp"

namespace tidemark {
namespace {

using test::supply;

struct outcome {
  bool failed = false;
  std::size_t steps = 0;
};

/// One allocation; on failure checks that nothing that a user can see changed.
template <class Arena>
void allocate_checked(Arena& a, std::size_t bytes, outcome& result) {
  const arena_stats before = a.stats();
  try {
    std::memset(a.allocate(bytes), 0x5A, bytes);
  } catch (std::bad_alloc const&) {
    result.failed = true;
    const arena_stats after = a.stats();
    EXPECT_EQ(after.used_bytes, before.used_bytes);
    EXPECT_EQ(after.peak_bytes, before.peak_bytes);
    EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
    EXPECT_EQ(after.committed_bytes, before.committed_bytes);
    EXPECT_EQ(after.chunks, before.chunks);
  }
  a.check_invariants();
  ++result.steps;
}

/// Chunks, oversize chunks, rewinds, trims and reuse: every place where memory is allocated or freed.
template <class Arena>
outcome run_workload(Arena& a) {
  outcome result;
  for (int round = 0; round < 3; ++round) {
    const arena_mark mark = a.mark();
    for (std::size_t i = 1; i <= 12; ++i) allocate_checked(a, i * 7000 % 50'000, result);
    allocate_checked(a, 300'000, result);
    allocate_checked(a, 100, result);
    a.rewind(mark);
    if (round == 1) {
      (void)a.trim(100'000);
      a.check_invariants();
    }
  }
  (void)a.trim();
  a.check_invariants();
  for (int i = 0; i < 3; ++i) allocate_checked(a, 60'000, result);
  a.release();
  a.check_invariants();
  allocate_checked(a, 1000, result);
  return result;
}

template <class MakeAndRun>
void fail_every_call_in_turn(MakeAndRun make_and_run) {
  std::size_t calls = 0;
  for (std::size_t failures : {std::size_t{1}, supply::never}) {
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE(::testing::Message() << failures << " calls fail from call " << n << " on");
      bool any_failed = false;
      calls = make_and_run(n, failures, any_failed);
      if (n >= calls) {
        EXPECT_FALSE(any_failed);
        break;
      }
      ASSERT_LT(n, 10'000u) << "the workload must end";
    }
  }
  EXPECT_GT(calls, 10u) << "the workload must ask for memory";
}

TEST(fault, any_failing_system_call_leaves_a_usable_arena_and_no_leak) {
  fail_every_call_in_turn([](std::size_t n, std::size_t failures, bool& any_failed) {
    test::recording_os os;  // reports leaks when it is destroyed
    os.fail_from = n;
    os.fail_count = failures;
    try {
      arena a{virtual_memory{{}, os}, {.reserve = 64 * KiB, .commit_step = 16 * KiB}};
      any_failed = run_workload(a).failed;
      os.fail_from = supply::never;
      a.reset();
      EXPECT_NE(a.try_allocate(100'000), nullptr) << "usable once the system has memory again";
    } catch (out_of_memory const&) {
      any_failed = true;  // the constructor's reservation
      EXPECT_EQ(n, 0u);
    }
    return os.calls;
  });
}

TEST(fault, any_failing_upstream_call_leaves_a_usable_arena_and_no_leak) {
  fail_every_call_in_turn([](std::size_t n, std::size_t failures, bool& any_failed) {
    test::recording_resource upstream;
    upstream.fail_from = n;
    upstream.fail_count = failures;
    upstream_arena a{&upstream};
    any_failed = run_workload(a).failed;
    upstream.fail_from = supply::never;
    a.reset();
    EXPECT_NE(a.try_allocate(100'000), nullptr);
    return upstream.calls;
  });
}

TEST(fault, a_failing_decommit_keeps_the_memory_and_its_account) {
  test::recording_os os;
  arena a{virtual_memory{{}, os}, {.reserve = 1 * MiB}};
  std::memset(a.allocate(500 * KiB), 0xFF, 500 * KiB);
  a.reset();
  const std::size_t committed = a.stats().committed_bytes;
  os.fail_from = os.calls;
  EXPECT_EQ(a.trim(), 0u);
  EXPECT_EQ(a.stats().committed_bytes, committed);
  auto* bytes = static_cast<unsigned char*>(a.push_bytes(500 * KiB));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[500 * KiB - 1], 0);
}

}  // namespace
}  // namespace tidemark
