// SPDX-License-Identifier: Apache-2.0
// Strategy: threads allocate and free at once. Each thread writes its mark into its blocks and checks it
// before it frees them, so that a block allocated twice is found. The exact counts are checked once all
// threads have ended. The build with ThreadSanitizer runs the same tests.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <memory_resource>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/global_pool.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

#include "calling_upstream.hpp"
#include "other_thread.hpp"
#include "recording_supply.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t repeats = 1000;

struct synchronized_pool_over_upstream : ::testing::Test {
  recording_resource upstream;
};

/// Blocks of one thread, marked with its number: `check` fails if anyone else wrote into one.
class marked_blocks {
 public:
  marked_blocks(synchronized_pool& pool, std::size_t thread) : pool_{pool}, mark_{0x1000 + thread} {}
  marked_blocks(marked_blocks const&) = delete;
  marked_blocks& operator=(marked_blocks const&) = delete;
  ~marked_blocks() { free_all(); }

  void allocate(std::size_t bytes) {
    auto* const first = static_cast<std::byte*>(pool_.allocate(bytes));
    std::memcpy(first, &mark_, sizeof mark_);
    std::memcpy(first + bytes - sizeof mark_, &mark_, sizeof mark_);
    held_.emplace_back(first, bytes);
  }
  void free_all() {
    for (; !held_.empty(); held_.pop_back()) {
      auto const& [first, bytes] = held_.back();
      std::size_t front = 0, back = 0;
      std::memcpy(&front, first, sizeof front);
      std::memcpy(&back, first + bytes - sizeof back, sizeof back);
      EXPECT_TRUE(front == mark_ && back == mark_)
          << "somebody else has this block of " << bytes << " bytes too";
      pool_.deallocate(first, bytes);
    }
  }

 private:
  synchronized_pool& pool_;
  std::size_t mark_;
  std::vector<std::pair<std::byte*, std::size_t>> held_;
};

/// `threads` threads that each hold `blocks` blocks at once and free them, `rounds` times; then the exact
/// counts.
void run_set(std::size_t threads, std::size_t blocks, std::function<std::size_t(std::size_t)> const& bytes_of,
             std::size_t rounds = repeats) {
  recording_resource upstream;
  {
    synchronized_pool pool{&upstream};
    on_threads(
        [&](std::size_t thread) {
          marked_blocks mine{pool, thread};
          for (std::size_t round = 0; round < rounds; ++round) {
            for (std::size_t i = 0; i < blocks; ++i) mine.allocate(bytes_of(i));
            mine.free_all();
          }
        },
        threads);
    const pool_stats stats = pool.stats();
    EXPECT_EQ(stats.allocations, threads * blocks * rounds);
    EXPECT_EQ(stats.deallocations, stats.allocations);
    EXPECT_EQ(stats.hits + stats.misses, stats.allocations);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.requested_bytes, 0u);
    EXPECT_EQ(stats.held_bytes, stats.cached_bytes + stats.stranded_bytes);
    EXPECT_LE(stats.cached_bytes, pool.options().max_cached_bytes);
    EXPECT_EQ(pool.thread_count(), 0u) << "threads that end give their caches back";
    pool.check_invariants();
  }
  EXPECT_EQ(upstream.outstanding, 0u);
}

std::size_t mixed(std::size_t i) {
  constexpr std::size_t sizes[] = {16, 100, 700, 64, 3000, 256, 9000, 20'000, 40, 1500};
  return sizes[i % std::size(sizes)];
}

// S2.8 S2.15 S2.16
// The set of ML Odyssey's tests, each repeated a thousand times.
TEST(synchronized_pool, stays_consistent_under_the_thread_tests_of_the_tensor_pool) {
  const auto each = [](std::size_t bytes) { return [bytes](std::size_t) { return bytes; }; };
  run_set(8, 200, each(256));
  run_set(4, 100, each(2048));
  run_set(8, 300, each(64));
  run_set(8, 100, mixed);
  run_set(4, 50, each(32 * KiB));
  run_set(8, 150, [](std::size_t i) { return 32 + i * 8; });
}

// S2.15
// The same as successive lives. In each life threads use a new pool, and end.
TEST(synchronized_pool, survives_a_thousand_pool_and_thread_lifetimes) {
  for (std::size_t life = 0; life < repeats; ++life) run_set(4, 10, mixed, 1);
}

// S2.17
TEST(synchronized_pool, a_block_may_be_freed_by_another_thread) {
  for (const std::size_t bytes : {200u, 40'000u}) {
    SCOPED_TRACE(bytes);
    synchronized_pool pool;
    constexpr std::size_t threads = 4, rounds = 50;
    const std::size_t blocks = 100'000 / bytes;
    std::vector<std::vector<void*>> held(threads, std::vector<void*>(blocks));
    std::barrier everyone{static_cast<std::ptrdiff_t>(threads)};
    on_threads(
        [&](std::size_t thread) {
          for (std::size_t round = 0; round < rounds; ++round) {
            for (void*& block : held[thread]) block = std::memset(pool.allocate(bytes), 1, bytes);
            everyone.arrive_and_wait();
            for (void* block : held[(thread + 1) % threads]) pool.deallocate(block, bytes);
            everyone.arrive_and_wait();
          }
        },
        threads);
    const pool_stats stats = pool.stats();
    EXPECT_EQ(stats.allocations, threads * blocks * rounds);
    EXPECT_EQ(stats.deallocations, stats.allocations);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.requested_bytes, 0u);
    pool.check_invariants();
  }
}

// S2.17
TEST_F(synchronized_pool_over_upstream, a_producer_and_a_consumer_run_on_a_bounded_amount_of_memory) {
  synchronized_pool pool{&upstream};
  constexpr std::size_t messages = 200'000, bytes = 256;
  std::vector<std::atomic<void*>> ring(256);
  std::thread producer{[&] {
    for (std::size_t i = 0; i < messages; ++i) {
      void* const block = pool.allocate(bytes);
      std::memcpy(block, &i, sizeof i);
      auto& place = ring[i % ring.size()];
      while (place.load(std::memory_order_acquire) != nullptr) std::this_thread::yield();
      place.store(block, std::memory_order_release);
    }
  }};
  std::thread consumer{[&] {
    for (std::size_t i = 0; i < messages; ++i) {
      auto& place = ring[i % ring.size()];
      void* block = nullptr;
      while ((block = place.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
      place.store(nullptr, std::memory_order_release);
      std::size_t number = 0;
      std::memcpy(&number, block, sizeof number);
      EXPECT_EQ(number, i);
      pool.deallocate(block, bytes);
    }
  }};
  producer.join();
  consumer.join();
  EXPECT_EQ(pool.stats().used_blocks, 0u);
  EXPECT_LT(pool.stats().held_bytes, 8 * MiB) << "51 MB went through it";
}

// S2.18
TEST_F(synchronized_pool_over_upstream, thread_exit_returns_its_cache) {
  synchronized_pool pool{&upstream};
  void* first = nullptr;
  std::thread{[&] {
    first = pool.allocate(8000);
    EXPECT_EQ(pool.thread_count(), 1u);
    pool.deallocate(first, 8000);
  }}.join();
  EXPECT_EQ(pool.thread_count(), 0u);
  const std::size_t calls = upstream.calls;
  void* second = nullptr;
  std::thread{[&] {
    second = pool.allocate(8000);
    pool.deallocate(second, 8000);
  }}.join();
  EXPECT_EQ(second, first);
  EXPECT_EQ(upstream.calls, calls);
}

TEST(synchronized_pool, works_in_destructors_of_thread_local_objects) {
  static synchronized_pool* used = nullptr;
  struct late {
    ~late() { used->deallocate(used->allocate(100), 100); }
  };
  synchronized_pool pool;
  used = &pool;
  std::thread{[&] {
    thread_local late user;
    (void)&user;
    pool.deallocate(pool.allocate(100), 100);
  }}.join();
  EXPECT_EQ(pool.thread_count(), 0u);
  EXPECT_EQ(pool.stats().allocations, 2u);
  EXPECT_EQ(pool.stats().deallocations, 2u);
}

// S2.18
TEST_F(synchronized_pool_over_upstream, may_be_destroyed_before_the_threads_that_used_it) {
  std::barrier both{2};
  auto pool = std::make_unique<synchronized_pool>(&upstream);
  std::thread user{[&] {
    pool->deallocate(pool->allocate(100), 100);
    both.arrive_and_wait();
    both.arrive_and_wait();  // the pool is gone
    synchronized_pool next{&upstream};
    next.deallocate(next.allocate(100), 100);
    EXPECT_EQ(next.stats().allocations, 1u) << "the new pool is not taken for the old one";
  }};
  both.arrive_and_wait();
  pool.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
  both.arrive_and_wait();
  user.join();
}

// S2.16
TEST_F(synchronized_pool_over_upstream, threads_within_their_caches_never_call_the_upstream) {
  synchronized_pool pool{&upstream};
  std::barrier everyone{4};
  std::atomic<std::size_t> calls{0};
  on_threads(
      [&](std::size_t thread) {
        marked_blocks mine{pool, thread};
        const auto round = [&] {
          for (std::size_t i = 0; i < 100; ++i) mine.allocate(16 + i * 20 % 4000);  // sizes of all classes
          mine.free_all();
        };
        round();
        everyone.arrive_and_wait();
        calls = upstream.calls;
        everyone.arrive_and_wait();
        for (int i = 0; i < 100; ++i) round();
        everyone.arrive_and_wait();
        EXPECT_EQ(upstream.calls, calls);
      },
      4);
}

// S2.29
TEST(synchronized_pool, snapshots_are_consistent_during_calls) {
  synchronized_pool pool{pool_options{.max_cached_bytes = 4 * MiB}};
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> begun{0};  // allocations, also those that have not reached the pool yet
  std::thread watcher{[&] {
    while (!stop) {
      const std::size_t begun_before = begun;
      const pool_stats now = pool.stats();
      // Allocations made during the call may count, but their deallocations do not.
      const std::size_t made_during = begun - begun_before + 4;
      EXPECT_EQ(now.hits + now.misses, now.allocations);
      // A difference that was below 0 would be a huge number.
      EXPECT_LE(now.hits, now.allocations);
      EXPECT_LE(now.used_blocks, 4u * 110 + made_during);
      EXPECT_LE(now.used_bytes, 4u * (100 * 1024 + 10 * 60'064) + made_during * 60'064);
      EXPECT_LE(now.requested_bytes, now.used_bytes);
      EXPECT_LE(now.cached_bytes, 64 * MiB);
      EXPECT_GE(now.peak_cached_bytes, now.cached_bytes);
    }
  }};
  std::thread resetter{[&] {
    while (!stop) {
      pool.reset_stats();
      std::this_thread::yield();
    }
  }};
  on_threads(
      [&](std::size_t thread) {
        marked_blocks mine{pool, thread};
        for (std::size_t round = 0; round < 300; ++round) {
          for (std::size_t i = 0; i < 110; ++i) {
            ++begun;
            mine.allocate(i >= 100 ? 20'000 + (round + i) % 5 * 10'000 : i % 3 == 0 ? 1000 : 64);
          }
          mine.free_all();
          if (round % 100 == 99) (void)pool.trim(100'000);
        }
      },
      4);
  stop = true;
  watcher.join();
  resetter.join();
  EXPECT_EQ(pool.stats().used_blocks, 0u);
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  pool.check_invariants();
}

// S2.10
TEST_F(synchronized_pool_over_upstream, never_caches_more_than_it_may) {
  synchronized_pool pool{pool_options{.max_cached_bytes = 512 * KiB}, &upstream};
  std::barrier everyone{4};
  on_threads(
      [&](std::size_t thread) {
        marked_blocks mine{pool, thread};
        mine.allocate(64);  // all are there, and have their share
        everyone.arrive_and_wait();
        for (std::size_t i = 0; i < 4000; ++i) mine.allocate(64 + i % 1000);
        mine.free_all();
        everyone.arrive_and_wait();
        EXPECT_LE(pool.stats().cached_bytes, 512 * KiB) << "all four caches and the depot";
        everyone.arrive_and_wait();
      },
      4);
  EXPECT_LE(pool.stats().cached_bytes, 512 * KiB);
  EXPECT_LT(pool.stats().held_bytes, 2 * MiB);
  pool.check_invariants();
}

// S2.11
TEST(synchronized_pool, clear_empties_the_cache_of_the_caller_in_each_of_24_pools) {
  std::vector<std::unique_ptr<synchronized_pool>> pools;
  for (std::size_t i = 0; i < 24; ++i) {
    pools.push_back(std::make_unique<synchronized_pool>());
    pools.back()->deallocate(pools.back()->allocate(64), 64);
  }
  for (auto const& pool : pools) {
    pool->clear();
    EXPECT_EQ(pool->stats().cached_bytes, 0u);
  }
}

// S2.16
// Only every eighth pool is used, so that the numbers of the others leave gaps in the threads' tables.
TEST(synchronized_pool, keeps_a_cache_for_each_of_many_pools_that_a_thread_uses_in_turn) {
  std::vector<std::unique_ptr<synchronized_pool>> pools(8 * 100);
  for (auto& pool : pools) pool = std::make_unique<synchronized_pool>();
  const auto use_all = [&] {
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < pools.size(); i += 8) {
        void* const block = pools[i]->allocate(64);
        pools[i]->deallocate(block, 64);
        ASSERT_EQ(pools[i]->allocate(64), block) << "from the thread's own cache";
        pools[i]->deallocate(block, 64);
      }
    }
  };
  use_all();
  std::thread{use_all}.join();
  for (std::size_t i = 0; i < pools.size(); i += 8) {
    EXPECT_EQ(pools[i]->thread_count(), 1u) << "the other thread has ended";
    EXPECT_EQ(pools[i]->stats().misses, 2u);
    pools[i]->check_invariants();
  }
}

// S2.18
TEST(synchronized_pool, threads_can_end_while_stacked_pools_are_destroyed) {
  for (int round = 0; round < 100; ++round) {
    synchronized_pool upstream;
    auto pool = std::make_unique<synchronized_pool>(pool_options{.max_cached_bytes = 4 * KiB}, &upstream);
    std::barrier both{3};
    const auto use = [&](std::size_t thread) {
      {
        marked_blocks mine{*pool, thread};
        for (std::size_t i = 0; i < 50; ++i) mine.allocate(mixed(i));
      }
      both.arrive_and_wait();  // the pool may end while this thread does
    };
    std::thread one{use, 1}, two{use, 2};
    both.arrive_and_wait();
    pool.reset();
    one.join();
    two.join();
    EXPECT_EQ(upstream.stats().used_blocks, 0u);
  }
}

// S2.11
TEST(synchronized_pool, clear_reaches_other_threads_in_their_next_call) {
  synchronized_pool pool;
  std::barrier both{2};
  std::thread other{[&] {
    std::vector<void*> held;
    for (int i = 0; i < 100; ++i) held.push_back(pool.allocate(64));
    for (void* block : held) pool.deallocate(block, 64);
    both.arrive_and_wait();
    both.arrive_and_wait();  // cleared
    EXPECT_GT(pool.stats().cached_bytes, 0u) << "this thread's cache is its own until its next call";
    pool.deallocate(pool.allocate(8, 512), 8, 512);  // such a block goes straight back
    EXPECT_EQ(pool.stats().cached_bytes, 0u);
    both.arrive_and_wait();
  }};
  both.arrive_and_wait();
  pool.clear();
  both.arrive_and_wait();
  both.arrive_and_wait();
  other.join();
  EXPECT_EQ(pool.stats().held_bytes, 0u);
}

// ---- one step at a time -----------------------------------------------------------------------------------

pool_options caching_at_most(std::size_t bytes,
                             std::vector<std::size_t> sizes = pool_options::tensor_classes().size_classes) {
  return {.max_cached_bytes = bytes, .size_classes = std::move(sizes)};
}

std::vector<void*> allocate_blocks(synchronized_pool& pool, std::size_t blocks, std::size_t bytes) {
  std::vector<void*> held(blocks);
  for (void*& block : held) block = pool.allocate(bytes);
  return held;
}
void deallocate_blocks(synchronized_pool& pool, std::vector<void*> const& held, std::size_t bytes) {
  for (void* block : held) pool.deallocate(block, bytes);
}
/// A call in which a thread handles requests of other threads. It caches no block.
void call(synchronized_pool& pool) { pool.deallocate(pool.allocate(8, 512), 8, 512); }

TEST(synchronized_pool, chains_of_many_size_classes_fit_in_a_thread_share) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 64; bytes <= 2048; bytes += 64) sizes.push_back(bytes);
  synchronized_pool pool{caching_at_most(512 * KiB, sizes)};
  std::vector<void*> live;
  std::thread{[&] {
    live = allocate_blocks(pool, 1000, 1024);
    std::vector<std::vector<void*>> of_class;
    for (const std::size_t bytes : sizes) of_class.push_back(allocate_blocks(pool, 7 * KiB / bytes, bytes));
    for (std::size_t i = 0; i < sizes.size(); ++i) deallocate_blocks(pool, of_class[i], sizes[i]);
  }}.join();  // the depot has a chain of each class now
  test::other_thread other;
  other.run([&] { call(pool); });
  for (const std::size_t bytes : sizes) (void)pool.allocate(bytes);
  other.run([&] {
    std::size_t most = 0;
    for (void* block : live) {
      pool.deallocate(block, 1024);
      most = std::max(most, pool.stats().cached_bytes);
    }
    EXPECT_LE(most, 512 * KiB);
  });
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, larger_pending_trim_wins) {
  synchronized_pool pool;
  test::other_thread other;
  other.run([&] { deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64); });
  pool.clear();
  (void)pool.trim(1 * MiB);
  EXPECT_GT(pool.stats().cached_bytes, 60'000u);
  other.run([&] { call(pool); });
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

TEST(synchronized_pool, pending_pressure_wins_over_a_smaller_trim) {
  synchronized_pool pool;
  deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64);
  (void)signal_memory_pressure();
  (void)pool.trim(1 * MiB);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

TEST(synchronized_pool, trim_applies_to_threads_that_end_without_another_call) {
  synchronized_pool pool;
  {
    test::other_thread other;
    other.run([&] { deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64); });
    pool.clear();
    EXPECT_GT(pool.stats().cached_bytes, 60'000u);
  }
  EXPECT_EQ(pool.stats().held_bytes, 0u);
}

TEST(synchronized_pool, pressure_without_threads_reaches_the_next_thread) {
  synchronized_pool pool{caching_at_most(16 * MiB)};
  std::thread{[&] { deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64); }}.join();
  (void)signal_memory_pressure();
  EXPECT_GT(pool.stats().cached_bytes, 60'000u);
  call(pool);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  std::thread{[&] { deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64); }}.join();
  std::thread{[&] { call(pool); }}.join();
  EXPECT_GT(pool.stats().cached_bytes, 60'000u) << "the trim applies once";
}

TEST(synchronized_pool, trim_target_applies_to_caches_of_other_threads) {
  synchronized_pool pool{pool_options::tensor_classes()};
  test::other_thread other;
  other.run([&] { deallocate_blocks(pool, allocate_blocks(pool, 1000, 64), 64); });
  (void)pool.trim(200'000);
  other.run([&] { call(pool); });
  EXPECT_LE(pool.stats().cached_bytes, 200'000u);
  EXPECT_GT(pool.stats().cached_bytes, 130'000u) << "no less, except for a slab";
}

TEST(synchronized_pool, returns_slabs_when_the_last_live_block_is_freed) {
  synchronized_pool pool{caching_at_most(1 * MiB)};
  (void)pool.allocate(64);  // with several threads, none checks at every free
  test::other_thread other;
  other.run([&] {
    std::vector<void*> live = allocate_blocks(pool, 32 * KiB, 1024);
    std::shuffle(live.begin(), live.end(), std::mt19937_64{5});
    deallocate_blocks(pool, live, 1024);
  });
  EXPECT_LE(pool.stats().held_bytes, 1 * MiB) << "32 MiB were live";
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, thread_exit_returns_free_slabs) {
  synchronized_pool pool{caching_at_most(1 * MiB)};
  std::vector<void*> live;
  {
    test::other_thread other;
    other.run([&] {
      std::vector<void*> rest;
      for (std::size_t i = 0; i < 16 * KiB; ++i) {
        void* const block = pool.allocate(1024);
        (i % 64 == 0 ? live : rest).push_back(block);
      }
      deallocate_blocks(pool, rest, 1024);
      pool.clear();
    });
    EXPECT_GT(pool.stats().held_bytes, 15 * MiB) << "each live block holds a slab";
    // Half of them are freed, but no thread alone has freed enough to check.
    other.run([&] { deallocate_blocks(pool, {live.begin(), live.begin() + 118}, 1024); });
    deallocate_blocks(pool, {live.begin() + 118, live.begin() + 128}, 1024);
    EXPECT_GT(pool.stats().held_bytes, 15 * MiB);
  }
  EXPECT_LT(pool.stats().held_bytes, 9 * MiB);
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, serves_calls_after_the_thread_cache_has_ended) {
  struct late {
    synchronized_pool& pool;
    void* block;
    pthread_key_t key;
    int rounds;
  };
  synchronized_pool pool;
  void* const last = pool.allocate(100);
  late user{pool, last, 0, 0};
  // Destructors of keys run in rounds, and the cache ends in the first.
  const auto destructor = [](void* argument) {
    auto& me = *static_cast<late*>(argument);
    if (++me.rounds < 2) pthread_setspecific(me.key, argument);
    else me.pool.deallocate(me.block, 100);
  };
  ASSERT_EQ(pthread_key_create(&user.key, destructor), 0);
  std::thread{[&] {
    pool.deallocate(pool.allocate(100), 100);
    pthread_setspecific(user.key, &user);
  }}.join();
  pthread_key_delete(user.key);
  EXPECT_EQ(user.rounds, 2);
  EXPECT_EQ(pool.thread_count(), 1u) << "this thread";
  EXPECT_EQ(pool.stats().deallocations, 2u);
  EXPECT_EQ(pool.stats().requested_bytes, 0u);
  pool.check_invariants();
}

TEST(synchronized_pool, trim_keeps_its_retained_blocks_available_to_other_threads) {
  calling_upstream upstream;
  synchronized_pool pool{caching_at_most(16 * MiB), &upstream};
  deallocate_blocks(pool, allocate_blocks(pool, 1000, 1024), 1024);
  const std::uint64_t misses = pool.stats().misses;
  // The trim holds all blocks of the class while it returns some to the upstream. Another thread finds no
  // block, and waits for the trim's lock. It then checks again.
  std::binary_semaphore trimming{0};
  bool is_trimming = false;
  upstream.on_deallocate = [&] {
    if (std::exchange(is_trimming, true)) return;
    trimming.release();
    while (pool.thread_count() < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // until it waits, in all likelihood
  };
  std::thread user{[&] {
    trimming.acquire();
    (void)pool.allocate(1024);
  }};
  (void)pool.trim(500 * KiB);
  user.join();
  EXPECT_EQ(pool.stats().misses, misses);
  pool.release();  // its live blocks are meant to go with it
}

// ---- counts -----------------------------------------------------------------------------------------------

TEST(synchronized_pool, a_thread_with_blocks_of_all_classes_keeps_to_a_share_that_shrinks) {
  synchronized_pool pool{pool_options{.max_cached_bytes = 8 * MiB}};
  std::vector<std::pair<void*, std::size_t>> held;
  for (const std::size_t bytes : pool.options().size_classes) {
    // Most in one class: of the others each has less than half of the average.
    const std::size_t of_class = bytes == 1024 ? 2 * MiB : 20 * KiB;
    for (std::size_t sum = 0; sum < of_class; sum += bytes) held.emplace_back(pool.allocate(bytes, 8), bytes);
  }
  for (auto const& [block, bytes] : held) pool.deallocate(block, bytes, 8);
  std::vector<test::other_thread> others(15);
  for (test::other_thread& other : others) other.run([&] { call(pool); });
  call(pool);
  others[0].run([&] { (void)pool.trim(); });  // all cached bytes are then in the cache of this thread
  EXPECT_LE(pool.stats().cached_bytes, 4 * MiB / 16);
  EXPECT_GT(pool.stats().cached_bytes, 0u);
  pool.check_invariants();
}

TEST(synchronized_pool, returns_blocks_of_at_least_two_words) {
  synchronized_pool pool;
  EXPECT_EQ(pool.options().size_classes.front(), 16u);
  void* const block = pool.allocate(1, 1);
  EXPECT_EQ(pool.stats().used_bytes, 16u);
  pool.deallocate(block, 1, 1);
  EXPECT_THROW(synchronized_pool(pool_options{.size_classes = {8, 64}}), std::invalid_argument);
}

TEST(synchronized_pool, passes_chains_of_the_smallest_blocks_of_any_length) {
  synchronized_pool pool;
  std::vector<std::vector<void*>> held;
  for (const std::size_t blocks : {1u, 2u, 3u, 1u, 9000u, 1u})
    held.push_back(allocate_blocks(pool, blocks, 16));
  for (auto const& blocks : held) {
    std::thread{[&] { deallocate_blocks(pool, blocks, 16); }}.join();  // a chain of each ended thread
  }
  pool.check_invariants();
  const std::uint64_t misses = pool.stats().misses;
  const std::vector<void*> again = allocate_blocks(pool, 9008, 16);
  EXPECT_EQ(pool.stats().misses, misses);
  pool.check_invariants();
  deallocate_blocks(pool, again, 16);
}

// ---- large blocks -----------------------------------------------------------------------------------------

TEST_F(synchronized_pool_over_upstream, reuses_a_large_block_freed_by_another_thread) {
  pool_options options = pool_options::tensor_classes();
  options.keep_large_blocks = true;
  synchronized_pool pool{options, &upstream};
  void* first = nullptr;
  std::thread{[&] {
    first = pool.allocate(100'000);
    pool.deallocate(first, 100'000);
  }}.join();
  EXPECT_EQ(pool.stats().cached_bytes, 277'504u + 100'032u);
  const std::size_t calls = upstream.calls;
  void* const second = pool.allocate(90'000);
  EXPECT_EQ(second, first);
  EXPECT_EQ(upstream.calls, calls);
  EXPECT_EQ(pool.stats().used_bytes, 90'048u);
  EXPECT_EQ(pool.stats().requested_bytes, 90'000u);
  EXPECT_EQ(pool.stats().hits, 1u);
  pool.deallocate(second, 90'000);
  pool.check_invariants();
}

TEST_F(synchronized_pool_over_upstream, keeps_large_blocks_up_to_half_of_a_small_limit) {
  synchronized_pool pool{caching_at_most(400'000), &upstream};
  deallocate_blocks(pool, allocate_blocks(pool, 10, 50'000), 50'000);
  EXPECT_GT(pool.stats().peak_cached_bytes, 150'000u);
  EXPECT_LE(pool.stats().peak_cached_bytes, 200'000u);
  const std::size_t cached = pool.stats().cached_bytes, calls = upstream.calls;
  EXPECT_GT(cached, 100'000u);
  deallocate_blocks(pool, allocate_blocks(pool, 2, 50'000), 50'000);
  EXPECT_EQ(upstream.calls, calls);
  pool.deallocate(pool.allocate(200'001), 200'001);
  EXPECT_EQ(pool.stats().cached_bytes, cached) << "a block above the limit evicts no block";
  EXPECT_GE(pool.trim(60'000), cached - 60'000);
  pool.check_invariants();
  pool.clear();
  EXPECT_EQ(pool.stats().held_bytes, 0u);
}

TEST(synchronized_pool, keeps_large_blocks_up_to_the_limit_less_4_MiB_per_thread) {
  synchronized_pool pool{caching_at_most(64 * MiB)};
  constexpr std::size_t bytes = 1'100'000;  // more than a thread keeps itself
  deallocate_blocks(pool, allocate_blocks(pool, 54, bytes), bytes);
  EXPECT_GT(pool.stats().cached_bytes, 58'000'000u);
  std::latch has_cache{1}, may_end{1};
  std::thread other{[&] {
    pool.deallocate(pool.allocate(64), 64);
    has_cache.count_down();
    may_end.wait();
  }};
  has_cache.wait();
  deallocate_blocks(pool, allocate_blocks(pool, 70, bytes), bytes);
  EXPECT_LE(pool.stats().cached_bytes, 56 * MiB + 4 * KiB);
  EXPECT_GT(pool.stats().cached_bytes, 40 * MiB);
  may_end.count_down();
  other.join();
  deallocate_blocks(pool, allocate_blocks(pool, 70, bytes), bytes);
  EXPECT_LE(pool.stats().cached_bytes, 60 * MiB + 4 * KiB);
  pool.check_invariants();
}

TEST(synchronized_pool, small_blocks_evict_only_as_many_large_blocks_as_needed) {
  synchronized_pool pool{caching_at_most(4 * MiB)};
  std::thread{[&] {
    deallocate_blocks(pool, allocate_blocks(pool, 19, 105'000), 105'000);
  }}.join();  // so that no cache has them
  EXPECT_GT(pool.stats().cached_bytes, 1'990'000u) << "19 blocks of 105,000 bytes";
  std::thread{[&] { deallocate_blocks(pool, allocate_blocks(pool, 3000, 64), 64); }}.join();
  EXPECT_GT(pool.stats().cached_bytes, 1'800'000u);
  EXPECT_LE(pool.stats().cached_bytes, 2 * MiB);
  pool.check_invariants();
}

// S2.9
TEST(synchronized_pool, peak_equals_the_highest_snapshot_with_large_blocks) {
  synchronized_pool pool{caching_at_most(64 * MiB)};
  std::mt19937_64 random{11};
  std::vector<std::pair<void*, std::size_t>> live;
  std::size_t peak = 0, large_hits = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.empty() || random() % 100 < (i / 1000 % 2 == 0 ? 60u : 40u)) {
      const std::size_t bytes = random() % 8 == 0 ? 20'000 + random() % 200'000 : random() % 3000;
      const std::uint64_t hits = pool.stats().hits;
      live.emplace_back(pool.allocate(bytes), bytes);
      if (bytes >= 20'000 && pool.stats().hits > hits) ++large_hits;
    } else {
      std::swap(live[random() % live.size()], live.back());
      pool.deallocate(live.back().first, live.back().second);
      live.pop_back();
    }
    peak = std::max(peak, pool.stats().cached_bytes);
    EXPECT_EQ(pool.stats().peak_cached_bytes, peak);
    if (i % 256 == 0) pool.check_invariants();
    if (i % 5000 != 4999) continue;
    (void)pool.trim(100'000);
    peak = pool.stats().peak_cached_bytes;  // a merged stranded chunk is cached until it is returned
  }
  EXPECT_GT(large_hits, 300u);
  for (auto const& [block, bytes] : live) pool.deallocate(block, bytes);
  pool.check_invariants();
}

/// Neighbours in one chunk, which the heap would merge.
std::vector<void*> allocate_neighbours(synchronized_pool& pool, std::size_t blocks, std::size_t bytes) {
  pool.deallocate(pool.allocate(blocks * bytes + 1 * MiB), blocks * bytes + 1 * MiB);
  std::vector<void*> held = allocate_blocks(pool, blocks, bytes);
  for (std::size_t i = 1; i < blocks; ++i)
    EXPECT_LT(static_cast<std::byte*>(held[i]) - static_cast<std::byte*>(held[i - 1]), bytes + 80);
  return held;
}

TEST(synchronized_pool, reuses_large_blocks_of_a_thread_in_lifo_order) {
  synchronized_pool pool;
  std::vector<void*> held = allocate_neighbours(pool, 8, 20'000);
  std::shuffle(held.begin(), held.end(), std::mt19937_64{5});
  deallocate_blocks(pool, held, 20'000);
  for (std::size_t i = held.size(); i-- > 1;) EXPECT_EQ(pool.allocate(19'990), held[i]) << "rounded up";
  const pool_stats now = pool.stats();
  EXPECT_EQ(now.used_blocks, 7u);
  EXPECT_EQ(now.used_bytes, 7u * 20'032);
  EXPECT_EQ(now.requested_bytes, 7u * 19'990);
  pool.check_invariants();
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, other_threads_take_large_blocks_that_a_thread_passed_on) {
  synchronized_pool pool;
  const std::vector<void*> held = allocate_neighbours(pool, 40, 65'536);
  std::thread{[&] {
    deallocate_blocks(pool, held, 65'536);
  }}.join();  // passes on 15, 15 again, and merges 10
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  const std::uint64_t allocations = pool.stats().allocations;
  std::thread{[&] {
    EXPECT_EQ(pool.allocate(65'536), held[29]) << "takes eight, having room for 15";
  }}.join();
  for (std::size_t i = 22; i-- > 0;) ASSERT_EQ(pool.allocate(65'536), held[i]) << "all, for more room";
  const pool_stats now = pool.stats();
  EXPECT_EQ(now.allocations, allocations + 23) << "blocks in a cache do not count";
  EXPECT_EQ(now.used_bytes, 23u * 65'600);
  EXPECT_EQ(now.requested_bytes, 23u * 65'536);
  pool.check_invariants();
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, a_large_size_that_replaces_another_leaves_all_other_sizes_cached) {
  synchronized_pool pool;
  void* const replaced = pool.allocate(30'000);
  void* const replaces = pool.allocate(40'000);  // has the same place in the thread's table
  std::vector<void*> held = allocate_neighbours(pool, 8, 50'000);
  std::shuffle(held.begin(), held.end(), std::mt19937_64{5});
  deallocate_blocks(pool, held, 50'000);
  pool.deallocate(replaced, 30'000);
  pool.deallocate(replaces, 40'000);
  pool.check_invariants();
  EXPECT_EQ(pool.allocate(40'000), replaces);
  for (std::size_t i = held.size(); i-- > 0;) EXPECT_EQ(pool.allocate(50'000), held[i]);
  pool.release();  // its live blocks are meant to go with it
}

TEST(synchronized_pool, passes_on_no_more_large_blocks_than_fit_its_limit) {
  synchronized_pool pool{caching_at_most(4 * MiB)};
  const std::vector<void*> held = allocate_blocks(pool, 200, 65'536);
  std::thread{[&] {
    for (void* each : held) {
      pool.deallocate(each, 65'536);
      EXPECT_LE(pool.stats().cached_bytes, 4 * MiB);
    }
  }}.join();
  pool.check_invariants();
  EXPECT_EQ(pool.stats().used_bytes, 0u);
  EXPECT_GT(pool.trim(), 0u);
  EXPECT_EQ(pool.stats().held_bytes, 0u);
}

TEST_F(synchronized_pool_over_upstream, merges_large_blocks_in_caches_before_the_heap_grows) {
  for (const bool passes_on : {false, true}) {
    synchronized_pool pool{&upstream};
    const std::vector<void*> held = allocate_neighbours(pool, 100, 20'000);
    if (passes_on) std::thread{[&] { deallocate_blocks(pool, held, 20'000); }}.join();
    else deallocate_blocks(pool, held, 20'000);
    const std::size_t calls = upstream.calls;
    (void)pool.allocate(2'950'000);
    EXPECT_EQ(upstream.calls, calls) << "the neighbours, and what is behind them";
    pool.check_invariants();
    pool.release();  // its live blocks are meant to go with it
  }
}

TEST(synchronized_pool, reuses_a_large_block_of_the_same_thread_without_a_lock) {
  calling_upstream upstream;
  std::latch called{1}, may_return{1};
  synchronized_pool pool{&upstream};
  pool.deallocate(pool.allocate(100'000), 100'000);
  upstream.on_allocate = [&] {
    called.count_down();
    may_return.wait();
  };
  std::thread other{[&] { pool.deallocate(pool.allocate(2 * MiB), 2 * MiB); }};
  called.wait();  // with the store locked
  std::atomic<bool> done{false};
  std::thread watchdog{[&] {
    for (int i = 0; i < 1000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    EXPECT_TRUE(done) << "waited for 10 s for the other thread";
    may_return.count_down();
  }};
  for (int i = 0; i < 100; ++i) pool.deallocate(pool.allocate(100'000), 100'000);
  done = true;
  watchdog.join();
  other.join();
  pool.check_invariants();
}

TEST(synchronized_pool, a_thread_keeps_large_blocks_of_up_to_a_sixteenth_of_its_share) {
  for (const std::size_t bytes : {256 * KiB, 256 * KiB + 1}) {
    synchronized_pool pool;
    test::other_thread other;
    void* freed = nullptr;
    other.run([&] { pool.deallocate(freed = pool.allocate(bytes), bytes); });
    EXPECT_EQ(pool.allocate(bytes) == freed, bytes > 256 * KiB);
    pool.release();  // its live blocks are meant to go with it
  }
}

TEST_F(synchronized_pool_over_upstream, trim_returns_the_bytes_freed_to_the_upstream) {
  synchronized_pool pool{caching_at_most(8 * MiB), &upstream};
  std::vector<void*> const kept = allocate_blocks(pool, 50, 70'000),
                           shared = allocate_blocks(pool, 40, 100'000);
  std::thread{[&] { deallocate_blocks(pool, shared, 100'000); }}.join();
  deallocate_blocks(pool, kept, 70'000);
  const std::size_t before = upstream.outstanding;
  const std::size_t returned = pool.trim();
  EXPECT_GT(returned, 4 * MiB);
  // A chunk has 64 bytes that are not counted.
  EXPECT_NEAR(static_cast<double>(returned), static_cast<double>(before - upstream.outstanding), 100 * 64);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(synchronized_pool_over_upstream, keeps_large_blocks_in_a_thread_cache_until_another_thread_trims) {
  synchronized_pool pool{&upstream};
  test::other_thread other;
  void* mine = nullptr;
  other.run([&] { pool.deallocate(mine = pool.allocate(200'000), 200'000); });
  void* const block = pool.allocate(200'000);
  EXPECT_NE(block, mine);
  EXPECT_EQ(pool.stats().used_bytes, 200'064u);
  EXPECT_EQ(pool.stats().cached_bytes, 200'064u);
  pool.deallocate(block, 200'000);
  EXPECT_EQ(pool.trim(), 200'064u) << "bytes of this thread";
  EXPECT_EQ(pool.stats().held_bytes, 200'064u);
  other.run([&] { call(pool); });
  EXPECT_EQ(pool.stats().held_bytes, 0u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST(synchronized_pool, reuses_large_blocks_of_more_sizes_than_cache_places) {
  synchronized_pool pool;
  constexpr std::size_t sizes = 200;  // for 64 places
  const auto bytes_of = [](std::size_t i) { return 17'000 + i * 64; };
  std::uint64_t misses = 0;
  for (int round = 0; round < 3; ++round) {
    marked_blocks mine{pool, 0};
    for (std::size_t i = 0; i < sizes; ++i) mine.allocate(bytes_of(i));
    if (round == 1) misses = pool.stats().misses;
    mine.free_all();
    EXPECT_EQ(pool.stats().used_bytes, 0u);
    pool.check_invariants();
  }
  EXPECT_EQ(pool.stats().misses, misses) << "the upstream is not called again for the same sizes";
  pool.clear();
  EXPECT_EQ(pool.stats().held_bytes, 0u);
}

TEST(synchronized_pool, blocks_freed_beyond_a_thread_share_serve_other_threads) {
  for (const std::size_t bytes : {std::size_t{50'000}, 200 * KiB, 2 * MiB}) {
    recording_resource upstream;
    synchronized_pool pool{&upstream};
    deallocate_blocks(pool, allocate_blocks(pool, 20 * MiB / bytes, bytes), bytes);
    const std::size_t calls = upstream.calls;
    std::vector<void*> held;
    std::thread{[&] { held = allocate_blocks(pool, 14 * MiB / bytes, bytes); }}.join();
    EXPECT_EQ(upstream.calls, calls) << "4 MiB at most are this thread's";
    deallocate_blocks(pool, held, bytes);
    pool.check_invariants();
  }
}

TEST_F(synchronized_pool_over_upstream, returns_large_blocks_of_this_thread_if_the_upstream_is_exhausted) {
  synchronized_pool pool{&upstream};
  pool.deallocate(pool.allocate(200'000), 200'000);
  for (const std::size_t bytes : {std::size_t{700'000}, std::size_t{8000}}) {
    upstream.fail_from = upstream.calls;  // the next call fails, the one after it does not
    void* const block = pool.allocate(bytes);
    EXPECT_LT(pool.stats().held_bytes, bytes + 5000);
    pool.deallocate(block, bytes);
    pool.check_invariants();
  }
}

TEST(synchronized_pool, poisons_a_large_block_in_a_thread_cache) {
  synchronized_pool pool;
  auto* const block = static_cast<unsigned char*>(pool.allocate(20'000));
  std::memset(block, 1, 20'000);
  pool.deallocate(block, 20'000);
#if TIDEMARK_ASAN
  EXPECT_EQ(__asan_region_is_poisoned(block, 20'000), block);
  ASSERT_EQ(pool.allocate(20'000), block);
  EXPECT_EQ(__asan_region_is_poisoned(block, 20'000), nullptr);
  pool.deallocate(block, 20'000);
#elif TIDEMARK_MSAN
  GTEST_SKIP() << "MemorySanitizer would report the look at it";
#else
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not fill it";
  EXPECT_EQ(block[19'999], detail::freed_fill);
#endif
}

TEST_F(synchronized_pool_over_upstream, release_forgets_large_blocks_in_caches) {
  synchronized_pool pool{&upstream};
  test::other_thread other;
  std::vector<void*> held;
  other.run([&] { held = allocate_blocks(pool, 5, 40'000); });
  pool.deallocate(held[0], 40'000);  // freed here, allocated there
  other.run([&] { pool.deallocate(held[1], 40'000); });
  pool.release();
  EXPECT_EQ(upstream.outstanding, 0u);
  const pool_stats now = pool.stats();
  EXPECT_EQ(now.used_blocks, 0u);
  EXPECT_EQ(now.used_bytes + now.cached_bytes + now.requested_bytes + now.held_bytes, 0u);
  void* const block = pool.allocate(40'000);
  std::memset(block, 1, 40'000);
  EXPECT_EQ(pool.stats().used_bytes, 40'064u);
  pool.deallocate(block, 40'000);
  pool.check_invariants();
}

// S2.19
TEST(synchronized_pool_death, level_2_finds_a_double_free_across_threads) {
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not look for misuse";
  synchronized_pool pool;
  void* block = pool.allocate(64);
  std::thread{[&] { pool.deallocate(block, 64); }}.join();
  EXPECT_DEATH(pool.deallocate(block, 64), "synchronized_pool 'pool': double free");
}

// ---- global pool ------------------------------------------------------------------------------------------

// S2.14
TEST(global_pool, is_one_for_all_threads) {
  synchronized_pool* const here = &global_pool();
  std::atomic<std::size_t> others{0};
  on_threads([&](std::size_t) { others += &global_pool() != here ? 1 : 0; }, 8);
  EXPECT_EQ(others, 0u);
}

// S2.14
TEST(global_pool, pooled_alloc_hits_when_repeated) {
  pooled_free(pooled_alloc(100), 100);
  const std::uint64_t hits = global_pool().stats().hits;
  void* first = pooled_alloc(100);
  pooled_free(first, 100);
  void* second = pooled_alloc(100);
  EXPECT_EQ(second, first);
  pooled_free(second, 100);
  EXPECT_EQ(global_pool().stats().hits, hits + 2);
  const std::uint64_t deallocations = global_pool().stats().deallocations;
  pooled_free(nullptr, 100);
  EXPECT_EQ(global_pool().stats().deallocations, deallocations);
}

// S2.14
TEST(global_pool, may_be_the_default_resource) {
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&global_pool());
  {
    const std::pmr::vector<int> numbers(1000, 7);
    EXPECT_EQ(numbers[999], 7);
    EXPECT_EQ(global_pool().upstream_resource(), std::pmr::new_delete_resource());
  }
  std::pmr::set_default_resource(before);
}

}  // namespace
}  // namespace tidemark::test
