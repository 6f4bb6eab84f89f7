// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of threads that use the counter of all resources or the lock for brief sections,
// and of a thread that reads the count at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/resource_stats.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using test::expect_every_schedule_passes;
using test::expect_failure;
using test::explored_sync;
using test::fault;
using test::faulty_sync;
using test::program;

/// Two threads allocate; the second deallocates too. At most 5 bytes are in use at once, and 3 at the end.
template <class Sync>
program counts_blocks() {
  const auto counter = std::make_shared<basic_usage_counter<Sync>>();
  const auto keeps = [=] { counter->on_allocate(3); };
  const auto goes = [=] {
    counter->on_allocate(2);
    counter->on_deallocate(2);
  };
  return program{{keeps, goes}, [=]() -> std::string {
                   const resource_stats now = counter->stats("");
                   if (now.used_bytes != 3 || now.used_blocks != 1) return "a block is not counted";
                   if (now.allocations != 2 || now.total_bytes != 5) return "the sums are wrong";
                   if (now.peak_bytes != 3 && now.peak_bytes != 5) return "no sum was the peak";
                   return "";
                 }};
}

// E.9
TEST(counts_schedules, add_up_once_all_calls_have_returned) {
  expect_every_schedule_passes(counts_blocks<explored_sync>, 20);
}

TEST(counts_schedules, lose_a_block_if_an_addition_takes_two_steps) {
  expect_failure(counts_blocks<faulty_sync<fault::split_updates>>, "a block is not counted");
}

TEST(counts_schedules, keep_snapshots_consistent_during_calls) {
  const auto make = [] {
    const auto counter = std::make_shared<basic_usage_counter<explored_sync>>();
    counter->on_allocate(1);
    const auto goes = [=] {
      counter->on_allocate(2);
      counter->on_deallocate(2);
    };
    const auto reads = [=] {
      const resource_stats now = counter->stats("");
      test::require(now.used_blocks <= now.peak_blocks && now.peak_blocks <= now.allocations,
                    "used_blocks <= peak_blocks <= allocations");
      test::require(now.used_bytes <= now.peak_bytes && now.peak_bytes <= now.total_bytes,
                    "used_bytes <= peak_bytes <= total_bytes");
    };
    return program{{goes, reads}};
  };
  expect_every_schedule_passes(make, 20);
}

/// Three threads and a limit with room for two.
template <class Sync>
program claims() {
  struct budget {
    typename Sync::template atomic<std::size_t> claimed{0};
    explored_sync::atomic<int> claims{0};
  };
  const auto of = std::make_shared<budget>();
  const auto claim = [=] {
    if (steps<true>::add_within(of->claimed, 2, 5)) of->claims.fetch_add(1, std::memory_order_relaxed);
  };
  return program{{claim, claim, claim}, [=] {
                   return of->claimed.load() == 4 && of->claims.load() == 2 ? "" : "the limit does not hold";
                 }};
}

TEST(counts_schedules, claim_no_more_than_a_limit) { expect_every_schedule_passes(claims<explored_sync>, 6); }

TEST(counts_schedules, exceed_a_limit_if_a_claim_takes_two_steps) {
  expect_failure(claims<faulty_sync<fault::split_updates>>, "the limit does not hold");
}

/// Three threads that try for a lock, and write to a plain variable if they have it.
template <class Sync>
program takes_turns() {
  struct guarded {
    basic_brief_lock<Sync> lock;
    explored_sync::shared<int> times{0};
  };
  const auto one = std::make_shared<guarded>();
  const auto turn = [=] {
    if (one->lock.is_locked() || !one->lock.try_lock()) return;
    one->times = one->times + 1;
    one->lock.unlock();
  };
  return program{{turn, turn, turn}, [=] { return one->times > 0 ? "" : "no thread had the lock"; }};
}

TEST(brief_lock_schedules, admit_one_thread_at_a_time) {
  expect_every_schedule_passes(takes_turns<explored_sync>, 20);
}

TEST(brief_lock_schedules, race_without_memory_order_or_exchange) {
  expect_failure(takes_turns<faulty_sync<fault::no_release>>, "race on shared");
  expect_failure(takes_turns<faulty_sync<fault::no_acquire>>, "race on shared");
  expect_failure(takes_turns<faulty_sync<fault::split_updates>>, "race on shared");
}

}  // namespace
}  // namespace tidemark::detail
