// SPDX-License-Identifier: Apache-2.0
// Strategy: every schedule of threads that begin and end captures, count under the lock, and pass a block to
// a thread that reads the count without the lock, with the production count.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>

#include <tidemark/graph/capture_switch.hpp>

#include "faulty_sync.hpp"
#include "schedules.hpp"

namespace tidemark::detail {
namespace {

using namespace test;

/// The records of a switch, as many as threads have frozen it.
template <class Sync>
struct counted_records {
  typename Sync::mutex mutex;
  basic_special_count<Sync> count;
  explored_sync::shared<std::size_t> records{0};
  explored_sync::atomic<bool> block_is_passed_on{false};

  void add(std::size_t n) {
    const std::scoped_lock lock{mutex};
    records = records + n;
    count.set(records);
  }
};

enum class passing { behind_the_count, before_the_count };
template <class Sync>
program pass_on_a_block(passing when) {
  const auto one = std::make_shared<counted_records<Sync>>();
  const auto pass = [=] { one->block_is_passed_on.store(true, std::memory_order_release); };
  const auto captures = [=] {
    if (when == passing::before_the_count) pass();
    one->add(1);
    if (when == passing::behind_the_count) pass();
  };
  const auto captures_and_ends = [=] {
    one->add(1);
    one->add(static_cast<std::size_t>(-1));
  };
  const auto deallocates = [=] {
    if (!one->block_is_passed_on.load(std::memory_order_acquire)) return;
    test::require(one->count.any(), "a block of a capture is taken for an ordinary one");
  };
  return program{{captures, captures_and_ends, deallocates},
                 [=] { return one->count.value() == 1 ? "" : "the count is not that of the records"; }};
}

// E.9
TEST(capture_schedules, recognise_a_block_of_a_capture_on_any_thread) {
  test::expect_every_schedule_passes([] { return pass_on_a_block<explored_sync>(passing::behind_the_count); },
                                     9);
}

TEST(capture_schedules, are_found_to_miss_a_block_passed_on_too_early) {
  test::expect_failure([] { return pass_on_a_block<explored_sync>(passing::before_the_count); },
                       "a block of a capture is taken for an ordinary one");
}

TEST(capture_schedules, are_found_to_miscount_without_the_lock) {
  test::expect_failure(
      [] { return pass_on_a_block<faulty_sync<fault::no_locks>>(passing::behind_the_count); },
      "race on shared");
}

}  // namespace
}  // namespace tidemark::detail
