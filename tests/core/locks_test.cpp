// SPDX-License-Identifier: Apache-2.0
// Strategy: one thread checks a lock's state, and many threads add to a plain number without losing an
// addition.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <tidemark/core/detail/brief_lock.hpp>

#include "thread_storm.hpp"

namespace tidemark::detail {
namespace {

TEST(brief_lock, reports_its_locked_state) {
  brief_lock lock;
  EXPECT_FALSE(lock.is_locked());
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.is_locked());
  lock.unlock();
  EXPECT_FALSE(lock.is_locked());
}

template <class Lock>
class locks : public ::testing::Test {};
using all_locks = ::testing::Types<brief_lock, adaptive_mutex>;
TYPED_TEST_SUITE(locks, all_locks, );

TYPED_TEST(locks, admit_one_thread_at_a_time) {
  TypeParam lock;
  const auto is_free = [&] {
    bool taken = false;
    std::thread{[&] {
      taken = lock.try_lock();
      if (taken) lock.unlock();
    }}.join();
    return taken;
  };
  EXPECT_TRUE(is_free());
  lock.lock();
  EXPECT_FALSE(is_free());
  lock.unlock();
  EXPECT_TRUE(is_free());
}

TYPED_TEST(locks, admit_a_waiting_thread_after_unlock) {
  brief_lock lock;
  std::atomic<bool> waits{false}, was_in{false};
  lock.lock();
  std::thread other{[&] {
    waits = true;
    const std::scoped_lock guard{lock};
    was_in = true;
  }};
  while (!waits) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // longer than the other waits awake
  EXPECT_FALSE(was_in);
  lock.unlock();
  other.join();
  EXPECT_TRUE(was_in);
}

TYPED_TEST(locks, lose_no_update_of_any_thread) {
  constexpr int additions = 50'000;
  TypeParam lock;
  long sum = 0;
  test::on_threads([&](std::size_t) {
    for (int k = 0; k < additions; ++k) {
      const std::scoped_lock guard{lock};
      ++sum;
    }
  });
  EXPECT_EQ(sum, long{test::storm_threads} * additions);
}

}  // namespace
}  // namespace tidemark::detail
