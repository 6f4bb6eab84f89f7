// SPDX-License-Identifier: Apache-2.0
// Strategy: use memory after its arena has rewound over it, in a child process whose exit and last output are
// compared. Count the work of trapping on a system that is short of addresses and memory and rejects each
// call in turn. The model and conformance tests of `trapping_arena_subject` show that the arena still behaves
// like an arena.
#include <tidemark/arena.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "choices.hpp"
#include "recording_supply.hpp"
#include "trapped_scopes.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

// Returns true if the process ended by the signal, or by a sanitizer's report of it.
bool ends_by_fault(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) != 0;
}

char const* const report = test::late_use;

// Ends the process with a number, after the signals' handler was set and an arena made.
void fault_with_handler(void (*handler)(int), trap_options const& trap, void const* address = nullptr) {
  signal(SIGSEGV, handler);
  arena a{{.name = "trapping", .trap = trap}};
  (void)read(address != nullptr ? address : in_a_scope(a));
}

// A handler that an arena found, and a signal that a process sent.
void ends_with_its_code(int, siginfo_t* info, void*) { _exit(info->si_code > 0 ? 45 : 46); }
void fault_with_detailed_handler() {
  struct sigaction detailed{};
  detailed.sa_sigaction = ends_with_its_code;
  detailed.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &detailed, nullptr);
  arena a{trapping};
  (void)read(in_a_scope(a));
}
void be_sent_an_ignored_signal() {
  signal(SIGSEGV, SIG_IGN);
  arena a{trapping};
  kill(getpid(), SIGSEGV);
  kill(getpid(), SIGSEGV);
  (void)read(in_a_scope(a));  // is still reported
}

// Tests of the first arena in a process: the child of a death test is a new process.
struct arena_trap_first_death : testing::Test {
  arena_trap_first_death() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~arena_trap_first_death() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

// E.5
TEST(arena_trap_death, reports_use_after_a_scope_and_ends_by_the_fault) {
  arena a{trapping};
  void* const late = in_a_scope(a);
  EXPECT_EXIT((void)read(late), ends_by_fault, report);
}

// E.5
TEST(arena_trap_death, a_use_after_a_rewind_to_a_mark_or_a_reset_is_reported) {
  arena a{trapping};
  const arena_mark mark = a.mark();
  void* const late = a.allocate(1);
  a.rewind(mark);
  EXPECT_EXIT((void)read(late), ends_by_fault, report);
  void* const later = a.allocate(1);
  EXPECT_NE(late, later);
  a.reset();
  EXPECT_EXIT((void)read(later), ends_by_fault, report);
}

TEST(arena_trap_death, traps_an_inner_scope_while_the_outer_scope_stays_usable) {
  arena a{trapping};
  arena::scope outer{a};
  auto* const kept = static_cast<char*>(outer.allocate(100));
  std::memset(kept, 7, 100);
  void* const late = in_a_scope(a, 100);
  EXPECT_EQ(kept[99], 7);
  EXPECT_NE(outer.allocate(1), late);
  EXPECT_EXIT((void)read(late), ends_by_fault, report);
  EXPECT_EXIT((void)read(static_cast<char*>(late) + 99), ends_by_fault, report);
}

TEST(arena_trap_death, traps_every_slice_of_a_scope) {
  arena a{trapping};
  void *first = nullptr, *last = nullptr;
  {
    arena::scope scope{a};
    first = scope.allocate(1);
    for (int i = 0; i < 20; ++i) last = scope.allocate(20 * KiB);
  }
  EXPECT_EQ(a.stats().untrapped_scopes, 0u);
  EXPECT_EQ(a.stats().trapped_scopes, 1u);
  EXPECT_EXIT((void)read(first), ends_by_fault, report);
  EXPECT_EXIT((void)read(last), ends_by_fault, report);
}

TEST(arena_trap_death, traps_data_after_a_freed_temporary) {
  arena a{trapping};
  void* late = nullptr;
  {
    arena::scope scope{a};
    a.deallocate(scope.allocate(100), 100);
    late = scope.allocate(10);
    a.pop(16);
    EXPECT_EQ(scope.allocate(10), late);
  }
  EXPECT_EQ(a.stats().trapped_scopes, 1u);
  EXPECT_EXIT((void)read(late), ends_by_fault, report);
}

TEST(arena_trap_death, a_use_by_another_thread_is_reported) {
  arena a{trapping};
  void* const late = in_a_scope(a);
  EXPECT_EXIT(std::thread([=] { (void)read(late); }).join(), ends_by_fault, report);
}

TEST(arena_trap_death, traps_use_after_a_rewind_that_left_the_record) {
  arena a{{.name = "trapping", .trap = {.one_in = 1}}};
  void* const late = in_a_scope(a);
  for (int i = 0; i < 300; ++i) (void)in_a_scope(a);
  EXPECT_EXIT(
      (void)read(late), ends_by_fault,
      "arena 'trapping': use of .*, which was never allocated, or whose rewind is no longer recorded");
}

TEST(arena_trap_death, does_not_report_an_overrun_of_an_open_scope_as_use_after_scope) {
  arena a{trapping};
  arena::scope scope{a};
  auto* const block = static_cast<char*>(scope.allocate(1));
  EXPECT_EXIT((void)read(block + 512 * KiB), ends_by_fault,
              "arena 'trapping': use of 0x[0-9a-f]+, which was never allocated, or");
}

// E.6
TEST_F(arena_trap_first_death, calls_the_earlier_signal_handler_after_the_report) {
  const auto handler = [](int) { _exit(42); };
  EXPECT_EXIT(fault_with_handler(handler, trapping.trap), testing::ExitedWithCode(42), report);
}

TEST_F(arena_trap_first_death, passes_signal_details_to_the_earlier_handler) {
  EXPECT_EXIT(fault_with_detailed_handler(), testing::ExitedWithCode(45), report);
}

TEST_F(arena_trap_first_death, keeps_ignoring_sent_signals_that_were_ignored) {
  EXPECT_EXIT(be_sent_an_ignored_signal(), ends_by_fault, report);
}

// E.6
TEST_F(arena_trap_first_death, does_not_report_a_fault_elsewhere) {
  const auto handler = [](int) { _exit(43); };
  EXPECT_EXIT(fault_with_handler(handler, trapping.trap, reinterpret_cast<void*>(16)),
              testing::ExitedWithCode(43), "^$");
}

TEST_F(arena_trap_first_death, sets_no_signal_handler_if_the_options_disable_it) {
  const auto handler = [](int) { _exit(44); };
  const trap_options trap{.one_in = 1, .handle_signals = false};
  EXPECT_EXIT(fault_with_handler(handler, trap), testing::ExitedWithCode(44), "^$");
}

// E.6
TEST(arena_trap, reports_the_original_arena_name_to_a_custom_handler) {
  test::violation_recorder violations;
  std::string name = "named once";
  arena a{{.name = name.c_str(), .trap = trapping.trap}};
  void* const late = in_a_scope(a);
  name = "named anew";
  int elsewhere = 0;
  EXPECT_FALSE(report_use_after_rewind(&elsewhere));
  EXPECT_TRUE(report_use_after_rewind(late));
  ASSERT_EQ(violations.count(violation_kind::use_after_rewind), 1u);
  EXPECT_EQ(violations.reports()[0].resource, "named once");
  a.release();
  EXPECT_FALSE(report_use_after_rewind(late)) << "the addresses may be another's now";
}

// Bytes of blocks that a scope of an arena that does not grow gets until it has no more.
std::size_t served_bytes(trap_options const& trap, std::size_t block_bytes) {
  arena a{{.reserve = 1 * MiB, .growable = false, .trap = trap}};
  arena::scope scope{a};
  std::size_t bytes = 0;
  for (void* block = nullptr; bytes < 4 * MiB; bytes += block_bytes) {
    block = a.try_allocate(block_bytes);
    if (block == nullptr) break;
    std::memset(block, 0x5A, block_bytes);
    a.check_invariants();
  }
  return bytes;
}

TEST(arena_trap, serves_the_same_bytes_in_a_fixed_arena_as_without_traps) {
  for (std::size_t block_bytes : {std::size_t{16}, 1 * KiB, 10 * KiB, 24'560 * std::size_t{1}, 300 * KiB}) {
    const std::size_t without = served_bytes({}, block_bytes);
    EXPECT_EQ(served_bytes({.one_in = 1}, block_bytes), without) << "with many addresses";
    EXPECT_EQ(served_bytes({.one_in = 1, .reserve = 128 * KiB}, block_bytes), without)
        << "with few addresses";
  }
}

TEST(arena_trap, keeps_the_capacity_of_a_fixed_arena_over_scopes_and_blocks_of_any_size) {
  constexpr std::size_t capacity = 1 * MiB, slack = 8 * KiB;
  test::choices random{49};
  arena a{{.reserve = capacity, .growable = false, .trap = {.one_in = 2, .reserve = 64 * KiB}}};
  std::vector<std::unique_ptr<arena::scope>> scopes;
  for (int i = 0; i < 5000; ++i) {
    if (i % 200 == 0 || (random() % 4 == 0 && scopes.size() > 2)) {
      while (!scopes.empty()) scopes.pop_back();
      a.reset();
    }
    if (random() % 4 == 0) scopes.push_back(std::make_unique<arena::scope>(a));
    const std::size_t bytes = 1 + random() % (random() % 3 == 0 ? 700 * KiB : 20 * KiB),
                      before = a.position();
    if (void* const block = a.try_allocate(bytes)) std::memset(block, 0x5A, bytes);
    else EXPECT_GT(before + bytes + slack, capacity) << "block " << i << " of " << bytes << " bytes";
    EXPECT_LE(a.position(), capacity);
    a.check_invariants();
  }
  while (!scopes.empty()) scopes.pop_back();
}

TEST(arena_trap, reserves_no_extra_chunk_for_scopes_that_outgrow_their_slices) {
  for (bool growable : {true, false}) {
    test::recording_os os;
    arena a{virtual_memory{{}, os},
            {.reserve = 64 * MiB, .growable = growable, .trap = {.one_in = 1, .reserve = 1 * MiB}}};
    std::size_t reserves = 0;
    for (int i = 0; i < 10; ++i) {
      arena::scope scope{a};
      for (int block = 0; block < 4000; ++block) (void)scope.allocate(10 * KiB);
      if (i == 0) reserves = os.reserves;
    }
    EXPECT_EQ(os.reserves, reserves);
    EXPECT_EQ(a.stats().untrapped_scopes, 10u) << "in part, and each once";
    EXPECT_EQ(a.stats().trapped_scopes, 0u);
  }
}

TEST(arena_trap, counts_a_scope_once_if_its_first_block_is_freed_repeatedly) {
  test::recording_os os;
  arena a{virtual_memory{{}, os}, trapping};
  const auto in_turn = [&](int times, auto free) {
    arena::scope scope{a};
    std::size_t calls = 0;
    for (int i = 0; i < times; ++i) {
      free(scope.allocate(100));
      if (i == 0) calls = os.calls;
    }
    EXPECT_EQ(os.calls, calls);
  };
  in_turn(20, [&](void* block) { a.deallocate(block, 100); });
  EXPECT_EQ(a.stats().trapped_scopes, 1u);
  in_turn(20, [&](void*) { a.pop(100); });
  EXPECT_EQ(a.stats().trapped_scopes, 2u);
}

// E.7
TEST(arena_trap, is_off_unless_requested) {
  test::recording_os os;
  arena a{virtual_memory{{}, os}, {}};
  void* const block = in_a_scope(a);
  EXPECT_EQ(in_a_scope(a), block);
  EXPECT_EQ(os.reserves, 1u);
  EXPECT_EQ(os.decommits, 0u);
  EXPECT_EQ(a.stats().trapped_scopes, 0u);
}

// E.7
TEST(arena_trap, samples_about_one_scope_in_ten_including_inner_scopes) {
  arena a{{.trap = {.one_in = 10}}};
  for (int i = 0; i < 10'000; ++i) a.deallocate(a.allocate(64), 64);
  EXPECT_LE(a.stats().trapped_scopes, 1u);
  const arena::scope outer{a};
  (void)a.allocate(100);
  for (int i = 0; i < 10'000; ++i) (void)in_a_scope(a);
  EXPECT_GT(a.stats().trapped_scopes, 700u);
  EXPECT_LT(a.stats().trapped_scopes, 1300u);
}

// Returns the scopes that a forked process traps next.
std::string trapped_by_child(arena& a) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t before = a.stats().trapped_scopes;
      (void)in_a_scope(a);
      const char is_trapped = a.stats().trapped_scopes != before ? 'x' : '.';
      if (write(ends[1], &is_trapped, 1) != 1) break;
    }
    _exit(0);
  }
  close(ends[1]);
  std::string scopes;
  for (char scope = 0; ::read(ends[0], &scope, 1) == 1;) scopes += scope;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return scopes;
}

TEST(arena_trap, samples_different_scopes_in_each_forked_process) {
  arena a{{.trap = {.one_in = 10}}};
  const std::string first = trapped_by_child(a), second = trapped_by_child(a);
  EXPECT_EQ(first.size(), 500u);
  EXPECT_EQ(second.size(), 500u);
  EXPECT_NE(first, second);
}

TEST(arena_trap, holds_no_memory_for_scopes_that_ended) {
  test::recording_os os;
  arena a{virtual_memory{{}, os}, trapping};
  const std::size_t before = a.stats().committed_bytes;
  for (int i = 0; i < 100; ++i) std::memset(in_a_scope(a, 4 * KiB), 0, 0);
  EXPECT_EQ(a.stats().committed_bytes, before);
  EXPECT_EQ(a.stats().trapped_scopes, 100u);
}

TEST(arena_trap, reuses_exhausted_addresses_with_zeroed_memory) {
  arena a{trapping};  // 256 pages of 4 KiB
  for (int i = 0; i < 1000; ++i) {
    arena::scope scope{a};
    const std::span<char> bytes = scope.push_array<char>(4 * KiB);
    for (char byte : bytes) ASSERT_EQ(byte, 0);
    std::memset(bytes.data(), 0x5A, bytes.size());
  }
  const arena_stats stats = a.stats();
  EXPECT_EQ(stats.trapped_scopes, 1000u);
  EXPECT_EQ(stats.untrapped_scopes, 0u);
  EXPECT_GT(stats.trap_reuses, 0u);
}

TEST(arena_trap, serves_a_scope_that_does_not_fit_its_addresses_from_ordinary_memory) {
  arena a{trapping};
  void* const large = in_a_scope(a, 2 * MiB + 1);
  EXPECT_EQ(a.stats().untrapped_scopes, 1u);
  EXPECT_EQ(a.stats().trapped_scopes, 0u);
  EXPECT_EQ(in_a_scope(a, 2 * MiB + 1), large) << "as without the option";
}

TEST(arena_trap, works_without_addresses_for_trapped_scopes) {
  test::recording_os os;
  os.fail_from = 1;  // the arena's own reservation is the one before
  os.fail_count = 100;
  arena a{virtual_memory{{}, os}, trapping};
  os.fail_from = test::supply::never;
  void* const block = in_a_scope(a);
  EXPECT_EQ(in_a_scope(a), block);
  EXPECT_EQ(a.stats().untrapped_scopes, 2u);
}

TEST(arena_trap, counts_memory_until_release_if_decommit_fails) {
  for (const std::size_t bytes : {100u, 5'000u, 70'000u, 200'000u, 300'000u}) {
    SCOPED_TRACE(bytes);
    test::recording_os os;
    arena a{virtual_memory{{}, os}, {.reserve = 2 * MiB, .commit_step = 12 * KiB, .trap = trapping.trap}};
    const std::size_t before = a.stats().committed_bytes, committed_before = os.committed_bytes;
    {
      arena::scope scope{a};
      std::memset(scope.allocate(bytes), 0x5A, bytes);
      os.fail_from = os.calls;
      os.fail_count = 1;
    }
    EXPECT_GE(os.committed_bytes - committed_before, bytes);
    EXPECT_EQ(a.stats().committed_bytes - before, os.committed_bytes - committed_before);
    EXPECT_EQ(a.stats().untrapped_scopes, 1u);
    for (int i = 0; i < 300; ++i) {
      arena::scope scope{a};
      ASSERT_EQ(scope.push_array<char>(4 * KiB)[99], 0) << "the addresses are not used again";
    }
    a.check_invariants();
    a.release();
    EXPECT_EQ(a.stats().committed_bytes, 0u);
  }
}

TEST(arena_trap, is_disabled_with_a_warning_on_borrowed_memory) {
  test::warning_recorder warnings;
  const upstream_arena a{upstream_memory{std::pmr::new_delete_resource()}, {.trap = {.one_in = 1}}};
  EXPECT_EQ(warnings.count(warning_kind::refused_setting), 1u);
}

TEST(arena_trap, is_an_option_of_scratch_arenas) {
  std::thread([] {
    set_scratch_options({.name = "scratch", .trap = {.one_in = 1}});
    void* first = nullptr;
    {
      arena::scope temporary = scratch(no_conflicts);
      first = temporary.allocate(1);
    }
    arena::scope temporary = scratch(no_conflicts);
    EXPECT_NE(temporary.allocate(1), first);
    EXPECT_EQ(temporary.arena().stats().trapped_scopes, 1u);
    set_scratch_options({.name = "scratch"});
  }).join();
}

}  // namespace
}  // namespace tidemark::test
