// SPDX-License-Identifier: Apache-2.0
// Strategy: interactions of threads with each other's epochs, first step by step, then at full speed for
// 100,000 rounds over upstreams that accept each block once. ThreadSanitizer runs it too.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/violation.hpp>
#include <tidemark/epoch.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "thread_storm.hpp"
#include "threaded_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// Runs to its end before the caller goes on.
template <class Body>
void on_another_thread(Body body) {
  std::thread{body}.join();
}

/// Passes a value from one thread to the next.
template <class T>
class letter_box {
 public:
  /// Stores a value and returns the previous one.
  T exchange(T thing) {
    const std::scoped_lock lock{mutex_};
    std::swap(thing, thing_);
    return thing;
  }

 private:
  std::mutex mutex_;
  T thing_{};
};

class epoch_threads : public testing::Test {
 protected:
  made_up_memory device;
  recording_resource recorded{&device};
  locked_resource upstream{&recorded};
  epoch_resource memory{{.host_memory = false}, &upstream};
};

// ---- step by step -----------------------------------------------------------------------------------------

// S3.24
TEST_F(epoch_threads, have_separate_epochs_at_the_same_time) {
  std::array<epoch_summary, storm_threads> ends;
  std::atomic<std::size_t> in_epoch{0};
  on_threads([&](std::size_t t) {
    epoch e{memory};
    EXPECT_EQ(memory.depth(), 1u);
    std::vector<buffer<int>> mine;
    mine.reserve(t + 1);
    for (std::size_t i = 0; i <= t; ++i) mine.emplace_back(memory, 100);
    in_epoch.fetch_add(1);
    while (in_epoch.load() != storm_threads) std::this_thread::yield();
    ends[t] = e.end();
    EXPECT_EQ(memory.depth(), 0u);
    for (buffer<int> const& b : mine) EXPECT_FALSE(b.is_live());
  });
  for (std::size_t t = 0; t < storm_threads; ++t)
    EXPECT_EQ(ends[t].reclaimed, t + 1) << "only its own blocks";
  EXPECT_EQ(memory.stats().reclaimed, 1u + 2 + 3 + 4);
  memory.check_invariants();
}

// S3.24
TEST_F(epoch_threads, do_not_reclaim_blocks_of_a_thread_without_an_epoch) {
  buffer<int> theirs;
  void* raw = nullptr;
  {
    epoch e{memory};
    const buffer<int> mine{memory, 100};
    on_another_thread([&] {
      EXPECT_EQ(memory.depth(), 0u);
      theirs = {memory, 100};
      raw = memory.allocate(100);
    });
    EXPECT_EQ(memory.stats().used_blocks, 1u);
    EXPECT_EQ(e.end().reclaimed, 1u);
  }
  EXPECT_TRUE(theirs.is_live());
  EXPECT_EQ(recorded.outstanding, 100 * sizeof(int) + 100);
  on_another_thread([&] { memory.deallocate(raw, 100); });
}

TEST_F(epoch_threads, address_freed_by_another_thread_can_be_reused_and_kept) {
  epoch outer{memory};
  epoch inner{memory};
  buffer<int> a{memory, 100};
  void* const address = a.data();
  on_another_thread([&] { EXPECT_TRUE(a.release()); });
  a = {memory, 100};
  if (a.data() != address) GTEST_SKIP() << "the heap hands out another address";
  inner.keep(a);
  EXPECT_EQ(inner.end().promoted, 1u);
  EXPECT_TRUE(a.is_live());
  EXPECT_EQ(outer.end().reclaimed, 1u);
}

// S3.6
TEST_F(epoch_threads, block_moved_to_another_threads_epoch_ends_with_that_epoch) {
  epoch e{memory};
  buffer<int> a{memory, 100};
  void const* const where = a.storage().address;
  std::atomic<bool> is_there{false}, is_over{false};
  std::thread other{[&] {
    epoch theirs{memory};
    (void)a.release();
    const buffer<int> successor{memory, 100};
    EXPECT_EQ(successor.storage().address, where) << "the test needs the same address";
    is_there = true;
    while (!is_over) std::this_thread::yield();
    EXPECT_TRUE(successor.is_live());
  }};
  while (!is_there) std::this_thread::yield();
  EXPECT_EQ(e.keep(where), 0u);
  EXPECT_EQ(e.end().reclaimed, 0u);
  is_over = true;
  other.join();
  memory.check_invariants();
}

// S3.10
TEST(epoch_threads_misuse, an_epoch_ended_on_another_thread_is_reported_and_stays_open) {
  recording_resource upstream;
  const violation_recorder recorder;
  {
    epoch_resource memory{{.name = "steps"}, &upstream};
    auto e = std::make_unique<epoch>(memory, "step");
    const buffer<int> tracked{memory, 100};
    on_another_thread([&] { e.reset(); });
    EXPECT_EQ(violation_recorder::only(violation_kind::wrong_thread),
              "epoch_resource 'steps': epoch \"step\" was ended on a thread that did not open it");
    EXPECT_TRUE(tracked.is_live());
    EXPECT_EQ(memory.depth(), 1u);
    {
      epoch inner{memory};
      const buffer<int> temporary{memory, 100};
      EXPECT_EQ(inner.end().reclaimed, 1u) << "epochs inside it go on";
    }
    memory.check_invariants();
  }
  ASSERT_EQ(violation_recorder::reports().size(), 2u);
  EXPECT_EQ(violation_recorder::reports()[1].message,
            "epoch_resource 'steps' was destroyed while 'step' was still open");
  EXPECT_EQ(upstream.outstanding, 0u);
  epoch_resource next{&upstream};
  EXPECT_EQ(next.depth(), 0u);
  epoch e{next};
  const buffer<int> temporary{next, 100};
  EXPECT_EQ(e.end().reclaimed, 1u) << "a later resource is not concerned";
}

TEST(epoch_threads_misuse, epoch_of_an_ended_thread_is_reported_with_its_resource) {
  recording_resource upstream, bookkeeping;
  const violation_recorder recorder;
  std::unique_ptr<epoch> e;
  {
    epoch_resource memory{{.bookkeeping = &bookkeeping}, &upstream};
    on_another_thread([&] {
      e = std::make_unique<epoch>(memory, "orphan");
      (void)memory.allocate(100);
    });
    e.reset();
    EXPECT_EQ(violation_recorder::count(violation_kind::wrong_thread), 1u);
  }
  EXPECT_EQ(violation_recorder::count(violation_kind::scope_outlived), 1u);
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(bookkeeping.outstanding, 0u);
}

TEST(epoch_threads_records, are_reused_by_later_threads) {
  made_up_memory device;
  recording_resource bookkeeping;
  epoch_resource memory{{.host_memory = false, .bookkeeping = &bookkeeping}, &device};
  const auto live = [&] {
    on_another_thread([&] {
      std::vector<buffer<int>> handles;
      handles.reserve(200);
      epoch e{memory};
      for (int i = 0; i < 200; ++i) handles.emplace_back(memory, 10);
    });
  };
  live();
  const std::size_t calls = bookkeeping.calls;
  for (int i = 0; i < 500; ++i) live();
  EXPECT_EQ(bookkeeping.calls, calls) << "records of a thread that ended serve the next";
  EXPECT_EQ(memory.stats().reclaimed, 501u * 200);
}

// ---- as fast as they can ----------------------------------------------------------------------------------

// S3.25
TEST(epoch_threads_storm, raw_block_freed_while_its_epoch_ends_is_returned_once) {
  constexpr std::size_t rounds = 100'000;
  static std::atomic<std::uint64_t> reports;  // on any thread, unlike a recorder
  reports = 0;
  const auto before = set_violation_handler([](violation const&) { ++reports; });
  each_once_memory upstream{rounds};
  epoch_resource memory{{.host_memory = false}, &upstream};
  std::atomic<void*> letter{nullptr};
  std::atomic<bool> is_over{false};
  std::uint64_t finalized = 0;  // by the finaliser
  std::thread finaliser{[&] {
    while (!is_over) {
      void* const block = letter.exchange(nullptr);
      if (block == nullptr) continue;
      memory.deallocate(block, 64, 64);
      ++finalized;
    }
  }};
  std::uint64_t deallocated_here = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    epoch e{memory};
    void* const unclaimed = letter.exchange(memory.allocate(64, 64));
    if (unclaimed == nullptr) continue;
    memory.deallocate(unclaimed, 64, 64);  // of the epoch before, so that it is late
    ++deallocated_here;
  }
  is_over = true;
  finaliser.join();
  EXPECT_EQ(upstream.outstanding(), 0u);
  const epoch_stats stats = memory.stats();
  EXPECT_EQ(stats.allocations, rounds);
  EXPECT_EQ(stats.deallocations + stats.reclaimed, rounds);
  EXPECT_EQ(stats.deallocations + stats.late, finalized + deallocated_here);
  EXPECT_EQ(reports, check_level >= 2 ? stats.late : 0u);
  set_violation_handler(before);
  memory.check_invariants();
}

TEST_F(epoch_threads, lose_no_block_while_threads_exchange_blocks) {
  constexpr int rounds = 4'000;
  std::array<letter_box<buffer<int>>, 64> letters;
  on_threads([&](std::size_t t) {
    std::minstd_rand random{static_cast<unsigned>(t + 1)};
    for (int i = 0; i < rounds; ++i) {
      epoch e{memory, "step"};
      std::vector<buffer<int>> mine;
      const std::size_t count = random() % 100;  // more than the log's first room
      for (std::size_t b = 0; b < count; ++b) {
        buffer<int> made{memory, 16};
        if (random() % 16 == 0) e.keep(made);
        if (random() % 2 == 0) mine.push_back(std::move(made));
        else (void)letters[random() % letters.size()].exchange(std::move(made));
      }
      if (random() % 4 == 0) continue;
      epoch inner{memory, "inner"};
      for (buffer<int>& b : mine) b = {memory, 16};
      if (!mine.empty()) inner.keep(mine.front());
    }
  });
  for (letter_box<buffer<int>>& box : letters) (void)box.exchange({});
  EXPECT_EQ(recorded.outstanding, 0u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  memory.check_invariants();
}

TEST(epoch_threads_storm, compacting_a_log_keeps_blocks_of_other_threads) {
  // One thread's log fills up repeatedly, because another thread frees its blocks and allocates the same
  // addresses in its own epochs.
  constexpr std::size_t rounds = 500'000;
  made_up_memory upstream;
  epoch_resource memory{{.host_memory = false}, &upstream};
  std::vector<std::atomic<void*>> letters(8192);
  std::atomic<bool> is_over{false};
  std::thread taker{[&] {
    while (!is_over) {
      epoch e{memory};
      for (std::atomic<void*>& letter : letters) {
        void* const block = letter.exchange(nullptr);
        if (block == nullptr) continue;
        memory.deallocate(block, 64, 64);
        (void)memory.allocate(64, 64);
      }
    }
  }};
  {
    epoch e{memory};
    for (std::size_t i = 0; i < rounds; ++i) {
      void* const unclaimed = letters[i % letters.size()].exchange(memory.allocate(64, 64));
      if (unclaimed != nullptr) memory.deallocate(unclaimed, 64, 64);
    }
    is_over = true;
    taker.join();
  }
  EXPECT_EQ(memory.stats().used_blocks, 0u) << "lost";
  memory.check_invariants();
}

// S3.35
TEST_F(epoch_threads, concurrently_read_statistics_stay_non_negative) {
  constexpr std::size_t max_blocks = storm_threads * 10;
  std::atomic<bool> is_over{false};
  std::thread reader{[&] {
    std::uint64_t allocations = 0;
    while (!is_over) {
      const epoch_stats stats = memory.stats();
      EXPECT_LE(stats.used_bytes, stats.peak_bytes + max_blocks * 64);
      EXPECT_LE(stats.used_blocks, stats.allocations);
      EXPECT_GE(stats.allocations, allocations);
      allocations = stats.allocations;
    }
  }};
  std::array<letter_box<buffer<int>>, 8> letters;
  on_threads([&](std::size_t t) {
    for (std::size_t i = 0; i < 5'000; ++i) {
      epoch e{memory};
      std::array<buffer<int>, 10> handles;
      for (buffer<int>& b : handles) b = {memory, 16};
      (void)letters[(i + t) % letters.size()].exchange(std::move(handles[i % 10]));
    }
  });
  is_over = true;
  reader.join();
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.stats().used_bytes, 0u);
}

// S3.25
TEST_F(epoch_threads, group_closes_while_other_threads_release_its_buffers) {
  constexpr int rounds = 20'000;
  std::array<letter_box<buffer<int>>, 4> letters;
  std::atomic<bool> is_over{false};
  std::thread finaliser{[&] {
    for (std::size_t i = 0; !is_over; ++i) (void)letters[i % letters.size()].exchange({});
  }};
  buffer_group tape{memory, "tape"};
  for (int i = 0; i < rounds; ++i) {
    for (letter_box<buffer<int>>& box : letters) {
      buffer<int> made{memory, 16};
      EXPECT_EQ(tape.add(made), 1u);
      (void)box.exchange(std::move(made));
    }
    const epoch_summary end = tape.close();
    EXPECT_LE(end.reclaimed, letters.size());
    EXPECT_EQ(tape.size(), 0u);
  }
  is_over = true;
  finaliser.join();
  for (letter_box<buffer<int>>& box : letters) (void)box.exchange({});
  const epoch_stats stats = memory.stats();
  EXPECT_EQ(stats.adopted, stats.deallocations + stats.reclaimed);
  EXPECT_EQ(recorded.outstanding, 0u);
  memory.check_invariants();
}

// ---- locks ------------------------------------------------------------------------------------------------

/// Makes the next request wait until the test opens the gate.
class gate final : public detail::distinct_resource {
 public:
  void close() { is_closed_ = true; }
  void wait_for_visitor() { visitors_.acquire(); }
  void open() { passes_.release(); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (is_closed_.exchange(false)) {
      visitors_.release();
      passes_.acquire();
    }
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }

  std::atomic<bool> is_closed_{false};
  std::binary_semaphore visitors_{0}, passes_{0};
};

/// Runs `body` while another thread enlarges the table of records and holds the lock of the table. The other
/// thread tracks address after address.
template <class Body>
void while_a_record_is_being_made(gate& bookkeeping, epoch_resource& memory, Body body) {
  std::thread other{[&] {
    epoch e{memory};
    const buffer<int> first{memory, 1};  // whatever an epoch itself takes has been taken
    bookkeeping.close();
    for (int i = 0; i < 10'000; ++i) (void)memory.allocate(64);
  }};
  bookkeeping.wait_for_visitor();
  body();
  bookkeeping.open();
  other.join();
}

// S3.11
TEST(epoch_threads_locks, do_not_wait_for_threads_without_an_open_epoch) {
  gate bookkeeping;
  each_once_memory upstream{20'000};
  epoch_resource memory{{.host_memory = false, .bookkeeping = &bookkeeping, .upstream = &upstream}};
  while_a_record_is_being_made(bookkeeping, memory, [&] {
    for (int i = 0; i < 100; ++i) memory.deallocate(memory.allocate(64, 64), 64, 64);
    const buffer<int> b{memory, 8};
    EXPECT_TRUE(b.is_live());
  });
  EXPECT_EQ(upstream.outstanding(), 0u);
}

// S3.37
TEST(epoch_threads_locks, do_not_wait_for_threads_that_track_new_addresses) {
  gate bookkeeping;
  made_up_memory
      upstream;  // returns addresses of a size again, so that this thread's addresses have their records
  epoch_resource memory{{.host_memory = false, .bookkeeping = &bookkeeping, .upstream = &upstream}};
  epoch step{memory};
  const auto reclaim_100 = [&] {
    epoch inner{memory};
    for (int i = 0; i < 100; ++i) (void)memory.allocate(4096);
    EXPECT_EQ(inner.end().reclaimed, 100u);
  };
  reclaim_100();
  while_a_record_is_being_made(bookkeeping, memory, reclaim_100);
  memory.check_invariants();
}

}  // namespace
}  // namespace tidemark::test
