// SPDX-License-Identifier: Apache-2.0
// Strategy: the additions of a shared arena to an arena, one fact at a time: threads that come and go,
// extents, rewinds for all threads, and misuse. Threads take turns by joining, so that every test is
// deterministic. shared_arena_model_test.cpp and extent_region_test.cpp have the concurrent tests.
#include <tidemark/team/shared_arena.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "caught.hpp"
#include "other_thread.hpp"
#include "recording_supply.hpp"
#include "unseen_write.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct default_shared_arena : ::testing::Test {
  shared_arena team;
};

// ---- threads and extents

// G.1
TEST_F(default_shared_arena, assigns_separate_extents_to_each_thread) {
  char* const here = static_cast<char*>(team.allocate(100));
  char* there = nullptr;
  on_another_thread([&] { there = static_cast<char*>(team.allocate(100)); });
  EXPECT_GE(there - here, static_cast<std::ptrdiff_t>(64 * KiB));
  EXPECT_EQ(static_cast<char*>(team.allocate(100)), here + 112);  // 100 rounded up to 16
  EXPECT_EQ(team.stats().threads, 2u);
  EXPECT_EQ(team.stats().used_bytes, 3 * 112u);
}

// G.1
TEST_F(default_shared_arena, begins_extents_at_whole_pages) {
  for (std::size_t place = 0; place < 3; ++place) {
    on_another_thread([&] {
      local_arena& local = team.local(place);
      std::uintptr_t expected = 0;
      int extents = 0;
      for (int i = 0; i < 10'000; ++i) {
        const auto block = reinterpret_cast<std::uintptr_t>(local.allocate(48));
        if (block != expected) {
          EXPECT_EQ(block % 4096, 0u);
          ++extents;
        }
        expected = block + 48;
      }
      EXPECT_GE(extents, 4);
    });
  }
}

// G.10
TEST_F(default_shared_arena, continues_in_the_extent_of_a_thread_that_ended_or_left) {
  std::vector<char*> blocks;
  const auto use = [&] { blocks.push_back(static_cast<char*>(team.allocate(16))); };
  on_another_thread(use);
  on_another_thread(use);
  use();
  team.leave();
  team.leave();  // there is no place to leave
  on_another_thread(use);
  for (std::size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(blocks[i], blocks[i - 1] + 16);
  EXPECT_EQ(team.stats().threads, 1u);
}

// G.1
TEST(shared_arena, doubles_thread_extents_up_to_the_maximum) {
  shared_arena team{{}, {.min_extent_bytes = 4 * KiB, .max_extent_bytes = 16 * KiB}};
  local_arena& local = team.local();
  std::vector<std::size_t> held;
  for (int i = 0; i < 4096; ++i) {
    (void)local.allocate(16);
    const std::size_t now = local.stats().committed_bytes;
    if (held.empty() || held.back() != now) held.push_back(now);
  }
  EXPECT_EQ(held, (std::vector<std::size_t>{4 * KiB, 8 * KiB, 16 * KiB, 32 * KiB, 48 * KiB, 64 * KiB}));
}

// G.2
TEST_F(default_shared_arena, allocates_a_large_block_apart_and_continues_in_the_extent) {
  local_arena& local = team.local();
  char* const before = static_cast<char*>(local.allocate(16));
  char* const large = static_cast<char*>(local.allocate(100'000));
  char* const after = static_cast<char*>(local.allocate(16));
  EXPECT_TRUE(after > before && after < before + 1024);  // a record lies between
  EXPECT_TRUE(large < before || large >= before + 64 * KiB);
  EXPECT_TRUE(local.owns(large) && local.owns(large + 99'999));
  std::memset(large, 1, 100'000);
  EXPECT_LE(team.stats().waste_bytes, 64 * KiB + 4 * KiB);  // the extent, and less than a page
}

// G.2
TEST_F(default_shared_arena, zeroes_a_large_block_that_a_scope_freed) {
  local_arena& local = team.local();
  (void)local.allocate(16);
  std::set<void*> places;
  for (int i = 0; i < 10; ++i) {
    local_arena::scope scope{local};
    auto bytes = scope.push_array<unsigned char>(300'000);
    for (unsigned char byte : bytes) ASSERT_EQ(byte, 0);
    std::memset(bytes.data(), 0xAB, bytes.size());
    places.insert(bytes.data());
  }
  EXPECT_EQ(places.size(), 1u);
  EXPECT_EQ(team.stats().used_bytes, 16u);
}

// G.12
TEST(shared_arena, reuses_extents_freed_by_any_thread) {
  shared_arena team{{.reserve = 64 * MiB}};
  for (int step = 0; step < 10; ++step) {
    for (int place = 0; place < 3; ++place) {
      on_another_thread([&] {
        local_arena& local = team.local(static_cast<std::size_t>(place));
        for (int i = 0; i < ((place + step) % 3 == 0 ? 8000 : 10); ++i) (void)local.allocate(128);
      });
    }
    team.reset();
  }
  // One thread uses 1 MiB in each step; all three together never hold three times as much.
  EXPECT_LE(team.stats().committed_bytes, 2 * MiB + 4 * 64 * KiB);
}

// G.12
TEST(shared_arena, wastes_at_most_one_extent_per_thread_and_a_quarter_of_the_bytes) {
  shared_arena team{{.reserve = 1 * GiB}};
  std::size_t requested = 0;
  for (std::size_t place = 0; place < 4; ++place) {
    on_another_thread([&] {
      local_arena& local = team.local(place);
      unsigned random = static_cast<unsigned>(place) + 1;
      for (int i = 0; i < 3000; ++i) {
        random = random * 1664525u + 1013904223u;
        const std::size_t bytes = (random >> 8) % (i % 10 == 0 ? 200'000 : 5'000) / 16 * 16 + 16;
        (void)local.allocate(bytes);
        requested += bytes;
      }
    });
  }
  const shared_arena_stats stats = team.stats();
  EXPECT_GE(stats.used_bytes, requested);
  EXPECT_LE(stats.waste_bytes, 4 * 1 * MiB + (stats.used_bytes + stats.waste_bytes) / 4);
}

// G.14
TEST(shared_arena, returns_the_same_addresses_in_each_step_for_fixed_places) {
  shared_arena team{{.reserve = 64 * MiB}, {.threads = 2}};
  std::vector<std::array<std::vector<void*>, 2>> steps(4);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t thread = step % 2 == 0 ? i : 1 - i;  // the other one comes first
      on_another_thread([&] {
        local_arena& local = team.local(thread);
        for (std::size_t n = 0; n < 500; ++n)
          steps[step][thread].push_back(local.allocate(n * 37 % (n % 50 == 0 ? 90'000 : 3000)));
      });
    }
    team.reset();
  }
  for (std::size_t step = 1; step < steps.size(); ++step) EXPECT_EQ(steps[step], steps[0]);
}

// G.14
TEST(shared_arena, rejects_more_threads_than_places) {
  shared_arena team{{}, {.threads = 1}};
  (void)team.allocate(16);
  on_another_thread([&] {
    EXPECT_EQ(message_of<std::logic_error>([&] { (void)team.allocate(16); }),
              "shared_arena 'arena': cannot allocate: it is for 1 threads, and all of them have handles");
    EXPECT_NE(
        message_of<std::logic_error>([&] { (void)team.local(0); }).find("place 0 belongs to another thread"),
        std::string::npos);
    EXPECT_NE(
        message_of<std::invalid_argument>([&] { (void)team.local(1); }).find("place 1 is not in 0 to 0"),
        std::string::npos);
  });
  EXPECT_THROW((void)team.local(1), std::logic_error);
  EXPECT_EQ(team.stats().used_bytes, 16u);
  shared_arena of_any_number;
  EXPECT_THROW((void)of_any_number.local(shared_arena::max_places), std::invalid_argument);
  (void)of_any_number.local(5);
  EXPECT_EQ(of_any_number.stats().threads, 1u);
}

TEST(shared_arena, is_found_by_each_thread_beside_more_arenas_than_it_has_slots) {
  std::vector<std::unique_ptr<shared_arena>> teams;
  for (std::size_t i = 0; i < 24; ++i) {
    teams.push_back(std::make_unique<shared_arena>(arena_options{.reserve = 1 * MiB}));
  }
  for (int round = 0; round < 3; ++round)
    for (auto const& team : teams) (void)team->allocate(16);
  for (auto const& team : teams) {
    EXPECT_EQ(team->stats().threads, 1u);
    EXPECT_EQ(team->stats().used_bytes, 3 * 16u);
  }
}

// G.10
TEST(shared_arena, may_be_destroyed_before_its_threads_end) {
  auto team = std::make_unique<shared_arena>();
  std::promise<void> used, destroyed;
  std::thread thread{[&] {
    (void)team->allocate(16);
    used.set_value();
    destroyed.get_future().wait();
  }};
  used.get_future().wait();
  team.reset();
  destroyed.set_value();
  thread.join();
}

TEST(shared_arena, divides_the_reservation_among_places) {
  shared_arena team{{.reserve = 1 * MiB}, {.threads = 64}};
  EXPECT_EQ(team.stats().reserved_bytes, 1 * MiB);
  local_arena& local = team.local(63);
  for (int i = 0; i < 1000; ++i) std::memset(local.allocate(2000), 1, 2000);
  EXPECT_LE(team.stats().waste_bytes, 2000 * 1000 / 3u);
}

TEST_F(default_shared_arena, wastes_no_more_for_alignment_than_whole_pages) {
  for (int i = 0; i < 100; ++i) {
    const auto block = reinterpret_cast<std::uintptr_t>(team.allocate(20'000, 1 * MiB));
    EXPECT_EQ(block % (1 * MiB), 0u);
  }
  EXPECT_LE(team.stats().waste_bytes, 64 * KiB + 100 * 4 * KiB);
}

// G.12
TEST(shared_arena, memory_freed_by_a_thread_scope_serves_other_threads) {
  shared_arena team{{.reserve = 8 * MiB, .growable = false}};
  local_arena& local = team.local();
  for (int round = 0; round < 3; ++round) {
    {
      local_arena::scope scope{local};
      for (int i = 0; i < 7000; ++i) (void)scope.allocate(1000);
    }
    on_another_thread([&] {
      local_arena& other = team.local();
      local_arena::scope scope{other};
      for (int i = 0; i < 5500; ++i) (void)scope.allocate(1000);
    });
    EXPECT_LE(team.stats().waste_bytes, 2 * 1 * MiB + 128 * KiB);
  }
}

TEST(shared_arena, reuses_its_own_extents_for_a_large_block) {
  shared_arena team{{.reserve = 1 * MiB, .growable = false}};
  local_arena& local = team.local();
  {
    local_arena::scope scope{local};
    while (local.try_allocate(1000) != nullptr) {
    }
  }
  EXPECT_NE(local.try_allocate(300 * KiB), nullptr);
}

TEST(shared_arena, lives_on_other_address_spaces) {
  test::recording_resource upstream;
  {
    basic_shared_arena<upstream_memory> team{upstream_memory{&upstream}, {.reserve = 100'000}};
    auto& local = team.local();
    for (std::size_t i = 0; i < 300; ++i) std::memset(local.allocate(i * 10), 1, i * 10);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(local.allocate(100'000, 4096)) % 4096, 0u);
    for (unsigned char byte : local.push_array<unsigned char>(50'000)) ASSERT_EQ(byte, 0);
    team.check_invariants();
    team.reset();
    (void)team.trim();
    team.check_invariants();
  }
  alignas(4096) static std::array<std::byte, 1 * MiB> buffer;
  basic_shared_arena<borrowed_memory> team{borrowed_memory{buffer.data(), buffer.size()}};
  EXPECT_EQ(team.allocate(16), buffer.data());
  EXPECT_THROW((void)team.allocate(1 * MiB), out_of_memory);
}

// G.10
TEST_F(default_shared_arena, serves_the_child_of_a_fork) {
  int* const kept = team.local().push<int>(7);
  on_another_thread([&] { (void)team.allocate(100); });
  const pid_t child = fork();
  if (child == 0) {
    const shared_arena_mark mark = team.mark();
    std::thread{[&] { (void)team.allocate(1 * MiB); }}.join();
    (void)team.allocate(1 * MiB);
    team.rewind(mark);
    _exit(*kept == 7 && team.stats().used_bytes == 16 + 112 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- deallocation

// G.2
TEST_F(default_shared_arena, frees_large_blocks_in_any_order) {
  local_arena& local = team.local();
  (void)local.allocate(16);
  for (int round = 0; round < 200; ++round) {
    void* const first = local.allocate(600'000);
    void* const second = local.allocate(600'000);
    local.deallocate(first, 600'000);
    local.deallocate(second, 600'000);
    for (const auto& [bytes, align] : {std::pair{std::size_t{8}, 1 * MiB},
                                       {std::size_t{70'000}, 32 * KiB},
                                       {std::size_t{100'000}, std::size_t{64}}}) {
      local.deallocate(local.allocate(bytes, align), bytes, align);
    }
  }
  EXPECT_EQ(local.stats().used_bytes, 16u);
  EXPECT_LE(team.stats().committed_bytes, 3 * MiB);
  {
    std::pmr::vector<int> grows{&team};
    for (int i = 0; i < 1'000'000; ++i) grows.push_back(i);
    EXPECT_LE(team.stats().used_bytes, 4 * MiB + 512 * KiB);  // and not twice as much
  }
}

TEST_F(default_shared_arena, keeps_the_record_of_a_block_below_a_mark_or_scope) {
  local_arena& local = team.local();
  void* const first = local.allocate(100'000);
  const arena_mark mark = local.mark();
  local.deallocate(first, 100'000);
  (void)local.allocate(100);
  local.rewind(mark);
  void* const second = local.allocate(100'000);
  {
    local_arena::scope scope{local};
    local.deallocate(second, 100'000);
    int* const inside = scope.push<int>(5);
    EXPECT_EQ(*inside, 5);
  }
  team.check_invariants();
  team.reset();
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

TEST(shared_arena, reclaims_the_newest_block_of_the_calling_thread_only) {
  test::violation_recorder violations;
  for (const std::size_t places : {0u, 2u}) {
    shared_arena team{{}, {.threads = places}};
    void* const ours = team.allocate(64);
    on_another_thread([&] { team.deallocate(ours, 64); });
    on_another_thread([&] {
      void* const theirs = team.allocate(64);
      team.deallocate(ours, 64);
      team.local().deallocate(ours, 64);
      team.deallocate(theirs, 64);
      EXPECT_EQ(team.allocate(64), theirs);
    });
    EXPECT_NE(team.allocate(64), ours);
  }
  EXPECT_TRUE(violations.reports().empty());
}

// ---- going back

// G.6
TEST_F(default_shared_arena, rewind_invalidates_later_marks_and_keeps_its_own) {
  const shared_arena_mark outer = team.mark();
  EXPECT_EQ(team.mark(), outer);
  (void)team.allocate(100);
  const shared_arena_mark inner = team.mark();
  EXPECT_NE(inner, outer);
  (void)team.allocate(100);
  team.rewind(inner);
  EXPECT_EQ(team.mark(), inner);
  team.rewind(outer);
  EXPECT_THROW(team.rewind(inner), std::invalid_argument);
  (void)team.allocate(100);
  EXPECT_THROW(team.rewind(inner), std::invalid_argument);
  team.rewind(outer);
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

// G.7
TEST(shared_arena, rejects_foreign_marks_and_marks_older_than_a_release) {
  shared_arena team{{.name = "ours"}};
  shared_arena other;
  EXPECT_THROW(team.rewind(shared_arena_mark{}), std::invalid_argument);
  EXPECT_THROW(team.rewind(other.mark()), std::invalid_argument);
  const shared_arena_mark mark = team.mark();
  team.release();
  EXPECT_NE(
      message_of<std::invalid_argument>([&] { team.rewind(mark); }).find("older than its last release()"),
      std::string::npos);
}

TEST_F(default_shared_arena, rejects_a_mark_that_a_thread_has_rewound_over) {
  local_arena& local = team.local();
  const arena_mark early = local.mark();
  (void)local.allocate(100);
  const shared_arena_mark mark = team.mark();
  local.rewind(early);
  (void)local.allocate(300);
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              team.rewind(mark);
            }).find("the mark of thread 0 was rewound over after it was taken"),
            std::string::npos);
  EXPECT_EQ(local.stats().used_bytes, 304u);
}

TEST_F(default_shared_arena, ends_the_marks_of_threads_that_it_rewinds_over) {
  local_arena& local = team.local();
  const shared_arena_mark mark = team.mark();
  (void)local.allocate(100);
  const arena_mark own = local.mark();
  team.rewind(mark);
  (void)local.allocate(200);
  EXPECT_THROW(local.rewind(own), std::invalid_argument);
}

// G.7
TEST_F(default_shared_arena, rejects_a_rewind_while_a_newer_thread_scope_is_open) {
  local_arena& local = team.local();
  const shared_arena_mark mark = team.mark();
  (void)local.allocate(16);
  {
    local_arena::scope scope{local};
    (void)scope.allocate(100);
    EXPECT_NE(
        message_of<std::invalid_argument>([&] { team.rewind(mark); }).find("thread 0 holds a thread scope"),
        std::string::npos);
    EXPECT_NE(message_of<std::logic_error>([&] { team.reset(); }).find("thread 0 holds a thread scope"),
              std::string::npos);
    EXPECT_THROW(team.release(), std::logic_error);
    EXPECT_EQ(local.stats().used_bytes, 16u + 112u);
  }
  team.rewind(mark);
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

TEST_F(default_shared_arena, rewinds_within_an_older_thread_scope) {
  local_arena& local = team.local();
  local_arena::scope scope{local};
  (void)scope.allocate(16);
  const shared_arena_mark mark = team.mark();
  (void)scope.allocate(100'000);
  team.rewind(mark);
  EXPECT_EQ(local.stats().used_bytes, 16u);
}

// G.13
TEST(shared_arena, keeps_memory_for_the_next_step) {
  test::recording_os os;
  shared_arena team{virtual_memory{{}, os}, {.reserve = 64 * MiB}};
  std::size_t calls = 0;
  for (int step = 0; step < 5; ++step) {
    shared_arena::scope scope{team};
    (void)team.allocate(16);
    for (int i = 0; i < 3; ++i) on_another_thread([&] { std::memset(team.allocate(2 * MiB), 1, 2 * MiB); });
    for (int i = 0; i < 1000; ++i) (void)team.allocate(1000);
    if (step == 0) calls = os.calls;
  }
  EXPECT_EQ(os.calls, calls);
  EXPECT_EQ(team.stats().system_calls, calls);
}

TEST(shared_arena, trims_to_the_used_bytes) {
  shared_arena team{{.reserve = 64 * MiB}};
  void* const kept = team.allocate(16);
  const shared_arena_mark mark = team.mark();
  on_another_thread([&] { std::memset(team.allocate(4 * MiB), 1, 4 * MiB); });
  team.rewind(mark);
  EXPECT_GT(team.stats().committed_bytes, 4 * MiB);
  EXPECT_GT(team.trim(1 * MiB), 2 * MiB);
  EXPECT_LE(team.stats().committed_bytes, 1 * MiB + 128 * KiB);
  (void)team.trim();
  EXPECT_EQ(team.stats().committed_bytes, 64 * KiB);
  std::memset(kept, 1, 16);
  team.check_invariants();
  std::memset(team.allocate(4 * MiB), 1, 4 * MiB);
}

TEST(shared_arena, stays_usable_after_release) {
  test::recording_os os;
  shared_arena team{virtual_memory{{}, os}, {.reserve = 1 * MiB}};
  for (int round = 0; round < 3; ++round) {
    on_another_thread([&] { (void)team.allocate(3 * MiB); });
    (void)team.allocate(100);
    team.release();
    EXPECT_EQ(os.outstanding, 0u);
    EXPECT_EQ(team.stats().used_bytes, 0u);
    team.check_invariants();
  }
}

TEST(shared_arena, reuses_earlier_chunks_beside_a_thread_that_came_late) {
  shared_arena team{{.reserve = 1 * MiB}};
  const auto work = [&] {
    for (int i = 0; i < 10'000; ++i) (void)team.allocate(1000);
  };
  work();
  on_another_thread([&] { (void)team.allocate(16); });  // its extent lies in the last chunk
  team.reset();
  const shared_arena_stats before = team.stats();
  for (int step = 0; step < 5; ++step) {
    work();
    team.reset();
    team.check_invariants();
  }
  EXPECT_EQ(team.stats().committed_bytes, before.committed_bytes);
  EXPECT_EQ(team.stats().system_calls, before.system_calls);
  (void)team.trim();
  EXPECT_LE(team.stats().committed_bytes, 1 * MiB + 128 * KiB);
}

TEST(shared_arena, returns_adjacent_chunks) {
  for (const std::size_t chunk : {2 * MiB, 4 * MiB}) {
    shared_arena team{{.reserve = chunk, .retain = 0}};
    for (int i = 0; i < 20'000; ++i) (void)team.allocate(1000);
    team.reset();
    team.check_invariants();
    EXPECT_LE(team.stats().committed_bytes, chunk);
    EXPECT_EQ(team.stats().free_bytes, 0u);
    for (int i = 0; i < 20'000; ++i) (void)team.allocate(1000);
    team.reset();
    (void)team.trim();
    EXPECT_EQ(team.stats().committed_bytes, 0u);
  }
}

// ---- destructors

struct logs_its_end {
  logs_its_end(std::vector<int>& to, int is) : log{&to}, number{is} {}
  logs_its_end(logs_its_end const&) = delete;
  logs_its_end& operator=(logs_its_end const&) = delete;
  ~logs_its_end() { log->push_back(number); }
  std::vector<int>* log;
  int number;
};

// G.9
TEST(shared_arena, runs_destructors_in_reverse_order_for_each_thread) {
  std::vector<int> log;
  {
    shared_arena team{{}, {.threads = 2}};
    for (int thread = 0; thread < 2; ++thread) {
      on_another_thread([&] {
        local_arena& local = team.local(static_cast<std::size_t>(thread));
        for (int i = 0; i < 3; ++i) local.make<logs_its_end>(log, 10 * thread + i);
      });
    }
    const shared_arena_mark mark = team.mark();
    on_another_thread([&] { team.local(1).make<logs_its_end>(log, 99); });
    team.rewind(mark);  // on this thread
    EXPECT_EQ(log, std::vector{99});
    team.reset();
    EXPECT_EQ(log, (std::vector{99, 2, 1, 0, 12, 11, 10}));
    on_another_thread([&] { team.local(0).make<logs_its_end>(log, 7); });
  }
  EXPECT_EQ(log.back(), 7);
}

// G.9
TEST(shared_arena, runs_destructors_that_deallocate_at_its_end) {
  test::violation_recorder violations;
  for (const std::size_t places : {0u, 3u}) {
    shared_arena team{{}, {.threads = places}};
    (void)team.allocate(16);
    for (int i = 0; i < 2; ++i) {
      std::promise<void> made;
      std::thread thread{[&] {
        (void)team.local().make<std::pmr::vector<int>>(std::size_t{1000}, &team);
        (void)team.local().make<std::pmr::vector<int>>(std::size_t{100'000}, &team);
      }};
      thread.join();
    }
  }
  EXPECT_TRUE(violations.reports().empty());
}

// G.9
TEST_F(default_shared_arena, runs_destructors_before_any_memory_is_freed) {
  local_arena& local = team.local();
  {
    local_arena::scope scope{local};
    auto* const texts = scope.make<std::pmr::vector<std::pmr::string>>(&local);
    for (int i = 0; i < 3000; ++i) texts->emplace_back("a text that is too long for the object itself");
  }
  for (const bool reset : {true, false}) {
    shared_arena other;
    (void)other.allocate(16);
    std::pmr::vector<std::pmr::string>* texts = nullptr;
    on_another_thread([&] { texts = other.local(1).make<std::pmr::vector<std::pmr::string>>(&other); });
    for (int i = 0; i < 3000; ++i) texts->emplace_back("a text that is too long for the object itself");
    if (reset) other.reset();
  }
}

TEST_F(default_shared_arena, lets_a_destructor_allocate_on_a_new_thread) {
  struct allocates {
    ~allocates() { (void)team->allocate(100); }
    shared_arena* team;
  };
  for (std::size_t place = 0; place < 4; ++place) {
    std::thread{[&] { team.local(place).make<allocates>(&team); }}.join();
  }
  team.reset();
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

// ---- failures

// G.11
TEST(shared_arena, reports_exhaustion_with_numbers) {
  shared_arena team{{.reserve = 1 * MiB, .growable = false, .name = "small"}};
  (void)team.allocate(100'000);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)team.allocate(2 * MiB); });
  EXPECT_STREQ(error.report().resource, "small");
  EXPECT_EQ(error.report().requested_bytes, 2 * MiB);
  EXPECT_EQ(error.report().reserved_bytes, 1 * MiB);
  EXPECT_GT(error.report().largest_bytes, 512 * KiB);
  EXPECT_LT(error.report().largest_bytes, 1 * MiB);
  EXPECT_NO_THROW((void)team.allocate(team.stats().reserved_bytes / 2));
}

// G.11
TEST(shared_arena, serves_other_threads_when_one_thread_fails) {
  shared_arena team{{.reserve = 1 * MiB, .growable = false}};
  void* const before = team.allocate(16);
  on_another_thread([&] {
    EXPECT_THROW((void)team.allocate(4 * MiB), out_of_memory);
    EXPECT_EQ(team.local().try_allocate(4 * MiB), nullptr);
  });
  EXPECT_EQ(static_cast<char*>(team.allocate(16)), static_cast<char*>(before) + 16);
  EXPECT_EQ(team.stats().used_bytes, 32u);
  team.check_invariants();
}

// G.11
TEST(shared_arena, stays_usable_after_any_failed_system_call) {
  for (std::size_t n = 0;; ++n) {
    test::recording_os os;
    os.fail_from = n;
    bool failed = false;
    const auto attempt = [&](auto call) {
      try {
        call();
      } catch (std::bad_alloc const&) {
        failed = true;
      }
    };
    attempt([&] {
      shared_arena team{virtual_memory{{}, os}, {.reserve = 256 * KiB, .commit_step = 4 * KiB, .retain = 0}};
      for (int round = 0; round < 3; ++round) {
        const shared_arena_mark mark = team.mark();
        for (int thread = 0; thread < 2; ++thread) {
          on_another_thread([&] {
            for (std::size_t i = 1; i <= 10; ++i) {
              attempt([&] { std::memset(team.allocate(i * 9000 % 50'000), 0x5A, i * 9000 % 50'000); });
              team.check_invariants();
            }
            attempt([&] { (void)team.allocate(300'000); });
          });
        }
        team.rewind(mark);
        (void)team.trim(8 * KiB);
        team.check_invariants();
      }
      EXPECT_EQ(team.stats().used_bytes, 0u);
    });
    if (os.calls <= n) break;
    EXPECT_TRUE(failed || os.decommits > 0) << "call " << n;
  }
}

// ---- scopes and misuse

struct shared_arena_scope : default_shared_arena {
  test::violation_recorder violations;
};

// G.6
TEST_F(shared_arena_scope, frees_at_the_end_of_its_block) {
  {
    shared_arena::scope outer{team};
    (void)team.allocate(100);
    {
      shared_arena::scope inner{team};
      on_another_thread([&] { (void)team.allocate(100'000); });
    }
    EXPECT_EQ(team.stats().used_bytes, 112u);
    EXPECT_EQ(&outer.arena(), &team);
  }
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

TEST_F(shared_arena_scope, moves_and_ends_once) {
  shared_arena::scope outer{team};
  (void)team.allocate(16);
  shared_arena::scope inner{team};
  (void)team.allocate(16);
  shared_arena::scope moved{std::move(inner)};
  EXPECT_FALSE(inner);
  inner.end();
  EXPECT_EQ(team.stats().used_bytes, 32u);
  moved.end();
  EXPECT_EQ(team.stats().used_bytes, 16u);
  outer.end();
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

// G.7
TEST_F(shared_arena_scope, rejects_resets_and_rewinds_below_it) {
  const shared_arena_mark before = team.mark();
  (void)team.allocate(16);
  shared_arena::scope scope{team};
  EXPECT_THROW(team.reset(), std::logic_error);
  EXPECT_THROW(team.release(), std::logic_error);
  EXPECT_THROW(team.rewind(before), std::invalid_argument);
  EXPECT_EQ(team.stats().used_bytes, 16u);
}

TEST_F(shared_arena_scope, reports_an_outer_scope_that_ends_first) {
  shared_arena::scope outer{team};
  (void)team.allocate(16);
  shared_arena::scope inner{team};
  (void)team.allocate(16);
  outer.end();
  EXPECT_EQ(violations.count(violation_kind::scope_order), 1u);
  EXPECT_EQ(team.stats().used_bytes, 32u);
  inner.end();
  EXPECT_EQ(team.stats().used_bytes, 0u);
}

TEST_F(shared_arena_scope, reports_an_arena_that_ends_under_it) {
  auto gone = std::make_unique<shared_arena>();
  shared_arena::scope scope{*gone};
  gone.reset();
  EXPECT_EQ(violations.count(violation_kind::scope_outlived), 1u);
  EXPECT_FALSE(scope);
}

TEST_F(shared_arena_scope, reports_a_thread_scope_that_is_still_open_and_frees_nothing) {
  local_arena& local = team.local();
  shared_arena::scope step{team};
  (void)local.allocate(16);
  local_arena::scope scope{local};
  step.end();
  ASSERT_EQ(violations.count(violation_kind::scope_order), 1u);
  EXPECT_NE(violations.reports()[0].message.find("thread 0 holds a thread scope"), std::string::npos);
  EXPECT_EQ(team.stats().used_bytes, 16u);
}

TEST_F(shared_arena_scope, keeps_its_place_reserved_after_its_thread_leaves) {
  local_arena& local = team.local();
  (void)local.allocate(16);
  local_arena::scope scope{local};
  team.leave();
  EXPECT_EQ(violations.count(violation_kind::scope_outlived), 1u);
  int* theirs = nullptr;
  on_another_thread([&] { theirs = team.local().push<int>(5); });
  scope.end();
  EXPECT_EQ(*theirs, 5);
}

#if TIDEMARK_CHECKS >= 2

using shared_arena_misuse = shared_arena_scope;

// G.8
TEST(shared_arena_checks, name_the_places_of_a_thread_scope_and_of_the_rewind) {
  shared_arena team{{.name = "step"}};
  local_arena& local = team.local();
  (void)local.allocate(16);
  const shared_arena_mark mark = team.mark();
  (void)local.allocate(16);
  local_arena::scope scope{local};
  const int opened = __LINE__ - 1;
  const std::string message = message_of<std::invalid_argument>([&] { team.rewind(mark); });
  const int rewound = __LINE__ - 1;
  EXPECT_NE(message.find("shared_arena_test.cpp:" + std::to_string(opened)), std::string::npos) << message;
  EXPECT_NE(message.find("shared_arena_test.cpp:" + std::to_string(rewound)), std::string::npos) << message;
}

// G.8
// The destructor runs inside the rewind, and waits there for a thread that has not stopped at a barrier.
TEST(shared_arena_checks, report_a_handle_that_is_used_during_a_rewind) {
  struct calls_at_end {
    explicit calls_at_end(std::function<void()> what) : call{std::move(what)} {}
    calls_at_end(calls_at_end const&) = delete;
    calls_at_end& operator=(calls_at_end const&) = delete;
    ~calls_at_end() { call(); }
    std::function<void()> call;
  };
  test::violation_recorder violations;
  shared_arena team{{.name = "step"}};
  std::promise<void> ready, rewinding, used;
  team.local().make<calls_at_end>([&] {
    rewinding.set_value();
    used.get_future().wait();
  });
  int made = 0;
  std::thread thread{[&] {
    local_arena& local = team.local();
    made = __LINE__ - 1;
    ready.set_value();
    rewinding.get_future().wait();
    (void)local.allocate(16);
    used.set_value();
  }};
  ready.get_future().wait();
  team.reset();
  const int rewound = __LINE__ - 1;
  thread.join();
  ASSERT_EQ(violations.reports().size(), 1u);
  EXPECT_EQ(violations.reports()[0].kind, violation_kind::wrong_thread);
  std::string const& message = violations.reports()[0].message;
  EXPECT_NE(message.find("allocate by thread 1"), std::string::npos) << message;
  EXPECT_NE(message.find("shared_arena_test.cpp:" + std::to_string(made)), std::string::npos) << message;
  EXPECT_NE(message.find("shared_arena_test.cpp:" + std::to_string(rewound)), std::string::npos) << message;
}

// G.8
TEST_F(shared_arena_misuse, report_a_handle_that_another_thread_uses) {
  local_arena& local = team.local();
  (void)local.allocate(16);
  on_another_thread([&] { (void)local.allocate(16); });
  EXPECT_EQ(violations.count(violation_kind::wrong_thread), 1u);
}

TEST_F(shared_arena_misuse, report_a_block_that_no_thread_has) {
  (void)team.allocate(16);
  int foreign = 0;
  team.deallocate(&foreign, sizeof foreign);
  EXPECT_EQ(violations.count(violation_kind::bad_deallocate), 1u);
}

TEST(shared_arena_checks, fill_memory_that_a_rewind_frees) {
  shared_arena team;
  unsigned char* block = nullptr;
  const shared_arena_mark mark = team.mark();
  on_another_thread([&] { block = static_cast<unsigned char*>(team.allocate(64)); });
  std::memset(block, 1, 64);
  team.rewind(mark);
  EXPECT_EQ(test::read_unseen(block, 0), detail::freed_fill);
}

#endif

// Calls a function before it reserves.
struct calling_memory : virtual_memory {
  std::function<void()> const* call = nullptr;

  explicit calling_memory(std::function<void()> const& called) : call{&called} {}
  byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    (*call)();
    return virtual_memory::reserve(least_bytes, wanted_bytes);
  }
};

TEST(shared_arena_reentry, is_reported_for_its_address_space) {
  test::violation_recorder violations;
  std::function<void()> call = [] {};
  basic_shared_arena<calling_memory> team{calling_memory{call}, {.reserve = 1 * MiB}};
  int calls = 0;
  call = [&] {
    if (++calls == 1) EXPECT_THROW((void)team.allocate(2 * MiB), std::system_error);
  };
  (void)team.allocate(2 * MiB);
  const int first_calls = calls;
  EXPECT_GE(first_calls, 1);
  ASSERT_EQ(violations.reports().size(), 1u);
  EXPECT_EQ(violations.reports()[0].kind, violation_kind::reentry);
  (void)team.allocate(2 * MiB);
  EXPECT_GT(calls, first_calls);
  EXPECT_EQ(violations.reports().size(), 1u);
  team.check_invariants();
}

}  // namespace
}  // namespace tidemark::test
