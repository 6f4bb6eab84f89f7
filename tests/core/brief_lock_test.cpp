// SPDX-License-Identifier: Apache-2.0
// Strategy: what one thread sees of the lock, and that many threads leave no addition to a plain number out.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <tidemark/core/detail/brief_lock.hpp>

namespace tidemark::detail {
namespace {

TEST(brief_lock, is_had_by_one_at_a_time) {
  brief_lock lock;
  EXPECT_FALSE(lock.is_taken());
  EXPECT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.is_taken());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_FALSE(lock.is_taken());
  EXPECT_TRUE(lock.try_lock());
}

TEST(brief_lock, lets_who_waits_in_when_it_is_given_up) {
  brief_lock lock;
  std::atomic<bool> waits{false}, was_in{false};
  lock.lock();
  std::thread other{[&] {
    waits = true;
    const std::scoped_lock guard{lock};
    was_in = true;
  }};
  while (!waits) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // longer than the other looks without sleeping
  EXPECT_FALSE(was_in);
  lock.unlock();
  other.join();
  EXPECT_TRUE(was_in);
}

TEST(brief_lock, loses_nothing_among_threads) {
  constexpr int threads = 4, additions = 50'000;
  brief_lock lock;
  long sum = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      for (int k = 0; k < additions; ++k) {
        const std::scoped_lock guard{lock};
        ++sum;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(sum, long{threads} * additions);
}

}  // namespace
}  // namespace tidemark::detail
