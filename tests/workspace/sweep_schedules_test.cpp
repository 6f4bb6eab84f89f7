// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of a sweeper that ticks while a workspace looks for ticks without a lock, with the
// library's own `sweep_schedule`.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <tidemark/workspace/detail/sweep_schedule.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using test::explored_sync;
using test::fault;
using test::faulty_sync;
using test::program;

/// Ticks, of which every second one trims, and the actions of a workspace.
template <class Sync>
struct swept_workspace {
  typename Sync::template atomic<std::uint64_t> newest{0};
  basic_sweep_schedule<Sync> schedule{newest, 2};
  std::uint64_t served = 0, compacted = 0;
  int trims = 0;

  // As a workspace before it opens an outermost scope.
  void open() {
    if (newest.load(std::memory_order_relaxed) == served) return;
    const sweep_request request = schedule.since(served);
    test::require(request.tick > served, "ticks rise");
    served = request.tick;
    trims += request.trims ? 1 : 0;
    if (request.compacts) compacted = request.tick;
  }
};

template <class Sync>
program two_ticks() {
  const auto one = std::make_shared<swept_workspace<Sync>>();
  const auto ticks = [=] { one->schedule.tick(); };
  const auto opens = [=] {
    for (int i = 0; i < 2; ++i) one->open();
  };
  return program{{ticks, ticks, opens}, [=]() -> std::string {
                   one->open();
                   if (one->newest.load() != 2 || one->compacted != 2) return "a tick is lost";
                   return one->trims == 1 ? "" : "the second tick trims, once";
                 }};
}

// E.9
TEST(sweep_schedules, lose_no_tick) { test::expect_every_schedule_passes(two_ticks<explored_sync>, 15); }

TEST(sweep_schedules, are_found_to_trim_twice_without_a_lock) {
  test::expect_failure(two_ticks<faulty_sync<fault::no_locks>>, "the second tick trims, once");
}

TEST(sweep_schedules, withdraw_only_earlier_requests) {
  const auto make = [] {
    const auto one = std::make_shared<swept_workspace<explored_sync>>();
    const auto withdraws = [=] {
      one->schedule.tick();
      one->schedule.withdraw();
      one->schedule.tick();
    };
    return program{{withdraws, [=] { one->open(); }}, [=]() -> std::string {
                     one->open();
                     if (one->compacted != 2) return "the tick after it is lost";
                     return one->trims == 1 ? "" : "the second tick trims, once";
                   }};
  };
  test::expect_every_schedule_passes(make, 4);
}

}  // namespace
}  // namespace tidemark::detail
