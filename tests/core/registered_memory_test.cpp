// SPDX-License-Identifier: Apache-2.0
// Strategy: a registrar that records each registered range, below every kind of arena, on the host and on a
// fake device. Each block must lie in one registration until its memory is released, also if a call fails.
#include <tidemark/core/registered_memory.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/process/shared_memory.hpp>
#include <tidemark/team/shared_arena.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "fake_device.hpp"
#include "recording_registrar.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark {
namespace {

using test::recording_os;
using test::recording_registrar;
using test::registrations;

using registered_virtual_memory = registered_memory<virtual_memory, recording_registrar<>>;
using registered_arena = basic_arena<registered_virtual_memory>;
using registered_device_memory = registered_memory<gpu::virtual_memory, recording_registrar<false>>;
using registered_device_arena = basic_arena<registered_device_memory>;

static_assert(reporting_space<registered_virtual_memory> && !ordered_space<registered_virtual_memory>);
static_assert(address_space<registered_memory<borrowed_memory, recording_registrar<>>>);
static_assert(address_space<registered_memory<upstream_memory, recording_registrar<>>>);
static_assert(reporting_space<registered_device_memory> && ordered_space<registered_device_memory>);
static_assert(registered_virtual_memory::traits.host_accessible &&
              !registered_virtual_memory::traits.device_accessible);
static_assert(registered_memory<gpu::pinned_memory, recording_registrar<>>::traits.device_accessible);
static_assert(!registered_device_memory::traits.host_accessible &&
              registered_device_memory::traits.device_accessible);
static_assert(registered_memory<upstream_memory, recording_registrar<>>::traits.block_granule == 1);
static_assert(registered_memory<shared_memory, recording_registrar<>>::traits.seen_by_others);
static_assert(!registered_virtual_memory::traits.seen_by_others);

/// A registrar whose calls other ranks would have to make as well.
struct collective_registrar : recording_registrar<> {
  using recording_registrar::recording_registrar;
  static constexpr bool is_collective = true;
};

registered_virtual_memory on(recording_os& os, registrations& known) {
  return {virtual_memory{{}, os}, recording_registrar<>{known}};
}

class registered_space : public testing::Test {
 protected:
  recording_os os;
  registrations known;
};

// ---- by itself

// R.1
TEST_F(registered_space, registers_a_range_once_and_deregisters_it_before_its_release) {
  registered_virtual_memory space = on(os, known);
  const byte_range range = space.reserve(1, 1 * MiB);
  ASSERT_FALSE(range.empty());
  EXPECT_EQ(known.registered, 1u);
  EXPECT_TRUE(known.has(range.data(), range.size));
  EXPECT_EQ(space.registrations(), 1u);
  EXPECT_EQ(space.registered_bytes(), range.size);
  EXPECT_TRUE(space.commit(range));
  EXPECT_FALSE(space.decommit(range));
  EXPECT_EQ(known.registered, 1u);
  space.release(range);
  EXPECT_EQ(known.deregistered, 1u);
  EXPECT_EQ(space.registrations(), 0u);
  EXPECT_EQ(space.registered_bytes(), 0u);
  EXPECT_EQ(os.releases, 1u);
}

// R.2
TEST_F(registered_space, halves_a_refused_registration_down_to_the_minimum) {
  registered_virtual_memory space = on(os, known);
  os.commit_limit_bytes = 64 * KiB;
  const byte_range range = space.reserve(64 * KiB, 1 * MiB);
  EXPECT_EQ(range.size, 64 * KiB);
  EXPECT_STREQ(space.refusal(), "");
  space.release(range);
  os.commit_limit_bytes = recording_os::never;
  for (std::size_t refusals = 0; refusals <= 4; ++refusals) {
    known.fail_from = known.calls;
    known.fail_count = refusals;
    const byte_range second = space.reserve(64 * KiB, 1 * MiB);
    EXPECT_EQ(second.size, 1 * MiB >> refusals);
    space.release(second);
  }
}

TEST_F(registered_space, tries_no_smaller_size_if_other_ranks_would_not) {
  registered_memory<virtual_memory, collective_registrar> space{virtual_memory{{}, os},
                                                                collective_registrar{known}};
  known.fail_from = 0;
  EXPECT_TRUE(space.reserve(64 * KiB, 1 * MiB).empty());
  EXPECT_EQ(known.calls, 1u);
}

TEST_F(registered_space, returns_memory_that_the_registrar_refuses) {
  registered_virtual_memory space = on(os, known);
  known.fail_from = 0;
  known.fail_count = registrations::never;
  EXPECT_TRUE(space.reserve(1, 1 * MiB).empty());
  EXPECT_GE(known.calls, 9u);
  EXPECT_STREQ(space.refusal(), "the registrar has no room");
  EXPECT_EQ(os.outstanding, 0u);
  os.fail_from = os.calls;
  os.fail_count = recording_os::never;
  EXPECT_TRUE(space.reserve(1, 1 * MiB).empty());
  EXPECT_STREQ(space.refusal(), "");
}

// R.2
TEST_F(registered_space, keeps_memory_that_cannot_be_deregistered_and_warns) {
  test::warning_recorder warnings;
  byte_range range;
  {
    registered_virtual_memory space = on(os, known);
    range = space.reserve(1, 64 * KiB);
    known.fail_from = known.calls;
    space.release(range);
    EXPECT_EQ(space.registrations(), 1u);
  }
  EXPECT_PRED2(test::contains, warnings.only(warning_kind::refused_return),
               "65536 bytes are lost until the process ends, because they cannot be "
               "deregistered: the registrar has no room");
  EXPECT_EQ(os.releases, 0u);
  *static_cast<char volatile*>(range.data()) = 1;  // the network may still write there
  known.remove_all();
  (void)os.release(range.data(), range.size);
}

// ---- arenas

// R.3
TEST_F(registered_space, makes_no_call_in_a_step_that_repeats) {
  registered_arena step{on(os, known), arena_options{.reserve = 64 * KiB, .name = "step"}};
  std::size_t registered = 0, calls = 0;
  for (int i = 0; i < 10; ++i) {
    registered_arena::scope scope{step};
    for (std::size_t bytes = 16; bytes <= 128 * KiB; bytes *= 2)
      EXPECT_TRUE(known.has(step.allocate(bytes), bytes));
    if (i == 0) {
      registered = known.registered;
      calls = os.calls;
    }
  }
  EXPECT_EQ(known.registered, registered);
  EXPECT_EQ(os.calls, calls);
  EXPECT_EQ(known.deregistered, 0u);
  EXPECT_EQ(step.space().registrations(), registered);
  step.release();
  EXPECT_EQ(known.deregistered, registered);
  EXPECT_EQ(step.space().registrations(), 0u);
}

// R.1
TEST_F(registered_space, needs_few_registrations_for_a_large_arena) {
  registered_arena step{on(os, known), arena_options{.reserve = 64 * KiB}};
  for (std::size_t i = 0; i < 64 * MiB; i += 4 * KiB) (void)step.allocate(4 * KiB);
  EXPECT_LE(known.registered, 11u);  // 64 KiB, 128 KiB, … 64 MiB
}

// R.2
TEST_F(registered_space, leaves_an_arena_unchanged_when_the_registrar_fails) {
  registered_arena step{on(os, known), arena_options{.reserve = 64 * KiB, .name = "step"}};
  void* const before = step.allocate(1000);
  const arena_stats stats = step.stats();
  known.fail_from = known.calls;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(1 * MiB); });
  EXPECT_PRED2(test::contains, error.what(), "; the registrar has no room");
  EXPECT_EQ(step.stats().used_bytes, stats.used_bytes);
  EXPECT_EQ(step.stats().reserved_bytes, stats.reserved_bytes);
  EXPECT_EQ(os.outstanding, stats.reserved_bytes);
  EXPECT_TRUE(known.has(before, 1000));
  EXPECT_TRUE(known.has(step.allocate(1 * MiB), 1 * MiB));
}

// R.1
TEST(registered_memory, keeps_each_block_in_one_registration_after_failures) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    recording_os os;
    registrations known;
    test::warning_recorder warnings;
    {
      registered_arena arena{on(os, known), arena_options{.reserve = 16 * KiB}};
      std::mt19937_64 random{seed};
      std::vector<std::pair<void*, std::size_t>> blocks;
      std::vector<std::pair<arena_mark, std::size_t>> marks;
      for (int i = 0; i < 2000; ++i) {
        if (random() % 10 == 0) os.fail_from = os.calls + random() % 3;
        if (random() % 10 == 0) known.fail_from = known.calls + random() % 3;
        // Memory that is lost is another test's.
        const auto without_loss = [&](auto work) {
          const std::size_t fails = std::exchange(known.fail_from, registrations::never);
          work();
          known.fail_from = fails;
        };
        switch (random() % 16) {
          case 0:
            marks.emplace_back(arena.mark(), blocks.size());
            break;
          case 1:
            if (marks.empty()) break;
            arena.rewind(marks.back().first);
            blocks.resize(marks.back().second);
            marks.pop_back();
            break;
          case 2:
            without_loss([&] { arena.trim(random() % (64 * KiB)); });
            break;
          case 3:
            if (random() % 8 != 0) break;
            without_loss([&] { arena.release(); });
            blocks.clear();
            marks.clear();
            break;
          default: {
            const std::size_t bytes = std::size_t{1} << random() % 16;
            if (void* const block = arena.try_allocate(bytes)) blocks.emplace_back(block, bytes);
          }
        }
        arena.check_invariants();
        for (auto const& [block, bytes] : blocks) ASSERT_TRUE(known.has(block, bytes)) << "seed " << seed;
        ASSERT_EQ(known.outstanding, arena.stats().reserved_bytes);
        ASSERT_EQ(os.outstanding, arena.stats().reserved_bytes);
      }
      known.fail_from = os.fail_from = registrations::never;
    }
    EXPECT_EQ(warnings.reports().size(), 0u);
  }
}

// R.3
TEST_F(registered_space, registers_the_chunks_of_a_shared_arena_for_all_threads) {
  basic_shared_arena<registered_virtual_memory> team{on(os, known),
                                                     arena_options{.reserve = 1 * MiB, .name = "team"}};
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<void*>> blocks(2);
    const auto work = [&](std::size_t thread) {
      auto& local = team.local(thread);
      for (int i = 0; i < 1000; ++i) blocks[thread].push_back(local.allocate(1000));
    };
    std::thread other{work, 1};
    work(0);
    other.join();
    for (auto const& of_thread : blocks)
      for (void* const block : of_thread) EXPECT_TRUE(known.has(block, 1000));
    team.reset();
  }
  EXPECT_EQ(team.space().registrations(), known.registered);
  EXPECT_EQ(known.deregistered, 0u);
  known.fail_from = known.calls;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)team.allocate(16 * MiB); });
  EXPECT_PRED2(test::contains, error.what(), "; the registrar has no room");
}

// A registrar whose test sets the calls that it refuses, and its action in `on_commit`.
struct obeying_registrar {
  struct orders {
    bool refuses_commits = false, refuses_decommits = false;
    std::function<void()> on_commit = [] {};
  };
  orders* given;

  bool on_commit(byte_range) noexcept { return given->on_commit(), !given->refuses_commits; }
  bool on_decommit(byte_range) noexcept { return !given->refuses_decommits; }
  [[nodiscard]] char const* refusal() const noexcept { return "it was told to"; }
};

std::function<void()> on_warning;

TEST(registered_memory, warns_of_lost_memory_after_the_lock_of_a_shared_arena) {
  using lower_memory = registered_memory<virtual_memory, obeying_registrar>;
  using upper_memory = registered_memory<lower_memory, obeying_registrar>;
  obeying_registrar::orders lower, upper;
  basic_shared_arena<upper_memory> team{
      upper_memory{lower_memory{virtual_memory{}, obeying_registrar{&lower}}, obeying_registrar{&upper}},
      arena_options{.reserve = 4 * MiB}};
  (void)team.allocate(64);
  lower.refuses_decommits = upper.refuses_commits = true;
  std::size_t warnings = 0, served = 0;
  on_warning = [&] {
    ++warnings;
    (void)team.stats();
    std::thread{[&] {
      (void)team.allocate(256 * KiB);
      ++served;
    }}.join();
  };
  warning_handler const before = set_warning_handler([](warning const& found) {
    EXPECT_EQ(found.kind, warning_kind::refused_return);
    on_warning();
  });
  ::alarm(60);
  EXPECT_THROW((void)team.allocate(8 * MiB), out_of_memory);
  ::alarm(0);
  (void)set_warning_handler(before);
  EXPECT_GE(warnings, 1u);
  EXPECT_EQ(served, warnings);
  lower.refuses_decommits = upper.refuses_commits = false;
  team.check_invariants();
}

TEST(registered_memory, reports_a_registrar_that_allocates_from_its_shared_arena) {
  using called_memory = registered_memory<virtual_memory, obeying_registrar>;
  test::violation_recorder violations;
  obeying_registrar::orders orders;
  basic_shared_arena<called_memory> team{called_memory{virtual_memory{}, obeying_registrar{&orders}},
                                         arena_options{.reserve = 1 * MiB}};
  int calls = 0;
  orders.on_commit = [&] {
    if (++calls == 1) EXPECT_THROW((void)team.allocate(2 * MiB), std::system_error);
  };
  (void)team.allocate(2 * MiB);
  EXPECT_EQ(violations.count(violation_kind::reentry), 1u);
  const int calls_before = calls;
  (void)team.allocate(2 * MiB);
  EXPECT_EQ(calls, calls_before + 1);
  EXPECT_EQ(violations.count(violation_kind::reentry), 1u);
  team.check_invariants();
}

TEST_F(registered_space, registers_a_whole_plan_once) {
  basic_planned_arena<registered_virtual_memory> memory{
      {}, virtual_memory{{}, os}, recording_registrar<>{known}};
  std::vector<void*> first;
  for (int i = 0; i < 5; ++i) {
    const decltype(memory)::step step{memory};
    std::vector<void*> blocks;
    for (std::size_t bytes : {1000u, 20'000u, 300u}) {
      blocks.push_back(memory.allocate(bytes));
      EXPECT_EQ(known.has(blocks.back(), bytes), i >= 1);
    }
    if (i == 1) first = blocks;
    if (i >= 1) EXPECT_EQ(blocks, first);
    std::size_t n = 0;
    for (std::size_t bytes : {1000u, 20'000u, 300u}) memory.deallocate(blocks[n++], bytes);
  }
  EXPECT_EQ(known.registered, 1u);
  EXPECT_EQ(memory.space().registrations(), 1u);
  EXPECT_EQ(memory.stats().planned_steps, 4u);
}

// R.3
TEST_F(registered_space, serves_a_graph_arena_with_a_range_that_is_registered) {
  registered_arena arena{on(os, known), arena_options{.reserve = 1 * MiB}};
  graph_arena graph{64 * KiB, &arena};
  EXPECT_TRUE(known.has(graph.range().data(), graph.range().size));
  EXPECT_EQ(known.registered, 1u);
}

// ---- a device

TEST_F(registered_space, registers_memory_of_a_device_without_touching_it) {
  test::fake_device device;
  gpu::stream stream{device};
  {
    registered_device_arena step{
        registered_device_memory{gpu::virtual_memory{stream, device}, recording_registrar<false>{known}},
        arena_options{.reserve = 4 * MiB, .name = "step"}};
    EXPECT_EQ(step.stream(), stream.get());
    for (int i = 0; i < 3; ++i) {
      registered_device_arena::scope scope{step};
      EXPECT_TRUE(known.has(step.allocate(1 * MiB), 1 * MiB));
      EXPECT_TRUE(known.has(step.allocate(8 * MiB), 8 * MiB));
      scope.end_after(stream.get());
    }
    EXPECT_EQ(known.registered, 2u);
  }
  EXPECT_EQ(known.deregistered, 2u);
}

TEST_F(registered_space, keeps_memory_of_a_device_beyond_its_space) {
  test::fake_device device;
  gpu::stream stream{device};
  const test::warning_recorder warnings;
  byte_range block;
  {
    registered_memory<gpu::device_memory, recording_registrar<false>> space{
        gpu::device_memory{1 * MiB, device}, recording_registrar<false>{known}};
    block = space.reserve(1, 1 * MiB);
    known.fail_from = known.calls;
    space.release(block);
  }
  EXPECT_TRUE(device.accessible(block.data(), block.size));
  EXPECT_EQ(device.free(block.begin), gpu::status::success);
  known.remove_all();
  byte_range range;
  {
    registered_device_memory space{gpu::virtual_memory{stream, device}, recording_registrar<false>{known}};
    range = space.reserve(1, 2 * MiB);
    known.fail_from = known.calls;
    space.release(range);
  }
  EXPECT_TRUE(device.accessible(range.data(), range.size));
  EXPECT_EQ(warnings.count(warning_kind::refused_return), 2u);
  known.remove_all();
  EXPECT_EQ(device.unmap(range), gpu::status::success);
  EXPECT_EQ(device.free_reservation(range), gpu::status::success);
  EXPECT_EQ(device.release(1), gpu::status::success);  // the first handle of the device
}

}  // namespace
}  // namespace tidemark
