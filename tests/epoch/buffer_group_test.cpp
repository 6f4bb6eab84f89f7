// SPDX-License-Identifier: Apache-2.0
// Strategy: every way into a buffer group and out of it, with the resource's counts and invariants after each
// test, over memory that must not be touched and an upstream that accepts each block once.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/epoch.hpp>

#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

class buffer_groups : public testing::Test {
 protected:
  void TearDown() override {
    const epoch_stats stats = memory.stats();
    EXPECT_EQ(stats.allocations + stats.adopted,
              stats.deallocations + stats.reclaimed + stats.let_go + stats.used_blocks);
    memory.check_invariants();
  }
  [[nodiscard]] buffer<int> made() { return {memory, 100}; }

  made_up_memory device;
  recording_resource upstream{&device};
  epoch_resource memory{{.host_memory = false}, &upstream};
  buffer_group tape{memory, "tape"};
};
constexpr std::size_t block_bytes = 100 * sizeof(int);

// S3.22
TEST_F(buffer_groups, reclaim_only_registered_buffers) {
  buffer<int> a = made(), other = made();
  buffer<double> b{memory, 3};
  EXPECT_EQ(tape.add(a, b), 2u);
  EXPECT_EQ(tape.size(), 2u);
  const epoch_summary end = tape.close();
  EXPECT_EQ(end.reclaimed, 2u);
  EXPECT_EQ(end.reclaimed_bytes, block_bytes + 3 * sizeof(double));
  EXPECT_EQ(end.promoted, 0u);
  EXPECT_FALSE(a.is_live());
  EXPECT_FALSE(b.is_live());
  EXPECT_TRUE(other.is_live());
  EXPECT_EQ(upstream.outstanding, block_bytes);
}

TEST_F(buffer_groups, return_their_name_and_resource) {
  const buffer_group named{memory, "tape"}, unnamed{memory};
  EXPECT_STREQ(named.name(), "tape");
  EXPECT_STREQ(unnamed.name(), "buffer_group");
  EXPECT_EQ(&named.resource(), &memory);
}

// ---- taking buffers ---------------------------------------------------------------------------------------

// S3.22
TEST_F(buffer_groups, registered_buffer_leaves_its_epoch_and_outlives_the_epoch) {
  buffer<int> a, b;
  {
    epoch e{memory};
    a = made();
    b = made();
    EXPECT_EQ(tape.add(a), 1u);
    const epoch_summary end = e.end();
    EXPECT_EQ(end.reclaimed, 1u);
    EXPECT_EQ(end.promoted, 0u);
  }
  EXPECT_TRUE(a.is_live());
  EXPECT_FALSE(b.is_live());
  EXPECT_EQ(memory.stats().let_go, 1u);
  EXPECT_EQ(memory.stats().adopted, 1u);
  EXPECT_EQ(tape.close().reclaimed, 1u);
}

TEST_F(buffer_groups, a_promoted_buffer_can_be_registered) {
  buffer<int> a;
  {
    epoch e{memory};
    a = made();
    e.keep(a);
  }
  const buffer_view<int> view = a.view();
  EXPECT_EQ(tape.add(a), 1u);
  EXPECT_TRUE(view.is_live());
  EXPECT_EQ(tape.close().reclaimed, 1u);
  EXPECT_FALSE(a.is_live());
  EXPECT_FALSE(view.is_live()) << "the life goes on, so that views see its end";
}

TEST_F(buffer_groups, ignore_empty_released_and_reclaimed_buffers) {
  buffer<int> never, zero{memory, 0}, released, reclaimed;
  {
    epoch e{memory};
    released = made();
    released.release();
    reclaimed = made();
  }
  EXPECT_EQ(tape.add(never, zero, released, reclaimed), 0u);
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_EQ(tape.close().reclaimed, 0u);
}

TEST_F(buffer_groups, a_reclaimed_handle_does_not_register_the_successor_of_its_block) {
  buffer<int> gone;
  {
    epoch e{memory};
    gone = made();
  }
  epoch e{memory};
  const buffer<int> successor = made();
  ASSERT_EQ(successor.storage().address, gone.storage().address) << "the test needs the same address";
  EXPECT_EQ(tape.add(gone), 0u);
  EXPECT_EQ(e.end().reclaimed, 1u);
}

TEST_F(buffer_groups, reject_a_buffer_of_another_resource_and_keep_earlier_buffers) {
  epoch_resource other{{.host_memory = false, .name = "others"}, &upstream};
  buffer<int> mine = made(), last = made(), foreign{other, 100};
  std::string message;
  try {
    tape.add(mine, foreign, last);
  } catch (std::invalid_argument const& error) {
    message = error.what();
  }
  EXPECT_EQ(message,
            "buffer_group \"tape\" of epoch_resource 'epochs': the buffer is of epoch_resource 'others'");
  EXPECT_EQ(tape.size(), 1u);
  tape.close();
  EXPECT_FALSE(mine.is_live());
  EXPECT_TRUE(last.is_live());
  EXPECT_TRUE(foreign.is_live());
}

TEST_F(buffer_groups, reject_a_buffer_without_memory_for_its_record) {
  recording_resource bookkeeping;
  epoch_resource there{{.host_memory = false, .bookkeeping = &bookkeeping}, &upstream};
  std::size_t refused = 0;
  {
    buffer_group recorded{there};
    buffer<int> a{there, 100};
    for (;; ++refused) {
      ASSERT_LT(refused, 10u);
      bookkeeping.fail_from = bookkeeping.calls + refused;
      bookkeeping.fail_count = 1;
      try {
        EXPECT_EQ(recorded.add(a), 1u);
        break;
      } catch (std::bad_alloc const&) {
        EXPECT_EQ(recorded.size(), 0u);
        EXPECT_TRUE(a.is_live());
        there.check_invariants();
      }
    }
    recorded.close();
    EXPECT_FALSE(a.is_live());
  }
  EXPECT_EQ(refused, 2u) << "one for the list, one for the record";
}

// ---- and how things leave them ----------------------------------------------------------------------------

TEST_F(buffer_groups, another_thread_can_release_a_registered_buffer_early) {
  buffer<int> a = made(), b = made();
  tape.add(a, b);
  std::thread{[&] {
    epoch e{memory};
    EXPECT_TRUE(a.release());
    EXPECT_EQ(e.end().reclaimed, 0u);
  }}.join();
  EXPECT_EQ(tape.size(), 1u);
  EXPECT_EQ(tape.close().reclaimed, 1u);
}

TEST_F(buffer_groups, keep_bookkeeping_small_while_buffers_are_added_and_freed) {
  recording_resource bookkeeping;
  epoch_resource there{{.host_memory = false, .bookkeeping = &bookkeeping}, &device};
  buffer_group recorded{there};
  for (int i = 0; i < 10'000; ++i) {
    buffer<int> a{there, 100};
    recorded.add(a);
  }
  EXPECT_LT(bookkeeping.outstanding, 16 * KiB) << "its list closes gaps";
  EXPECT_EQ(recorded.size(), 0u);
}

TEST_F(buffer_groups, reuse_the_records_of_an_earlier_group) {
  recording_resource bookkeeping;
  epoch_resource records_elsewhere{{.bookkeeping = &bookkeeping}};
  {
    const buffer_group first{records_elsewhere};
  }
  const std::size_t calls = bookkeeping.calls;
  {
    const buffer_group second{records_elsewhere};
  }
  EXPECT_EQ(bookkeeping.calls, calls);
}

// S3.23
TEST_F(buffer_groups, return_the_result_before_the_buffers_are_freed) {
  buffer<int> a = made();
  tape.add(a);
  const std::size_t size = tape.close_after([&] {
    EXPECT_TRUE(a.is_live());
    EXPECT_EQ(memory.stats().reclaimed, 0u);
    return a.size();
  });
  EXPECT_EQ(size, 100u);
  EXPECT_FALSE(a.is_live());
  EXPECT_EQ(memory.stats().reclaimed, 1u);
}

// S3.23
TEST_F(buffer_groups, close_if_the_extraction_throws) {
  buffer<int> a = made();
  tape.add(a);
  EXPECT_THROW(tape.close_after([]() -> int { throw std::runtime_error{"extract"}; }), std::runtime_error);
  EXPECT_FALSE(a.is_live());
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(buffer_groups, can_end_before_and_after_epochs) {
  buffer<int> a, b;
  std::optional<buffer_group> across{std::in_place, memory, "across"};
  {
    epoch e{memory};
    {
      buffer_group within{memory, "within"};
      a = made();
      b = made();
      within.add(a);
      across->add(b);
    }
    EXPECT_FALSE(a.is_live());
    EXPECT_EQ(memory.depth(), 1u) << "a buffer group is no epoch";
    EXPECT_EQ(e.end().reclaimed, 0u);
  }
  EXPECT_TRUE(b.is_live());
  epoch e{memory};
  const buffer<int> later = made();
  across.reset();
  EXPECT_FALSE(b.is_live());
  EXPECT_TRUE(later.is_live());
}

TEST_F(buffer_groups, take_over_a_buffer_from_an_epoch_of_another_thread) {
  buffer<int> a;
  std::thread{[&] {
    epoch e{memory};
    a = made();
    EXPECT_EQ(tape.add(a), 1u);  // while nothing else uses it
  }}.join();
  EXPECT_TRUE(a.is_live());
  EXPECT_EQ(tape.close().reclaimed, 1u);
}

TEST(owner_misuse, owner_that_outlives_its_resource_can_be_destroyed) {
  recording_resource upstream;
  const violation_recorder recorder;
  auto memory = std::make_unique<epoch_resource>(&upstream);
  const auto tape = std::make_unique<buffer_group>(*memory, "tape");
  const auto e = std::make_unique<epoch>(*memory, "step");
  (void)memory->allocate(100);
  memory.reset();
  EXPECT_EQ(e->end().reclaimed, 0u);
  EXPECT_EQ(violation_recorder::reports().size(), 2u) << "the tape and the step";
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST(owner_misuse, owner_that_outlives_its_resource_is_reported_and_frees_its_blocks) {
  recording_resource upstream;
  alignas(buffer<int>) std::byte room[sizeof(buffer<int>)];
  alignas(buffer_group) std::byte room_of_owner[sizeof(buffer_group)];
  const violation_recorder recorder;
  {
    epoch_resource memory{{.name = "steps"}, &upstream};
    // Neither is destroyed, because both would ask for the resource.
    auto* const tape = ::new (room_of_owner) buffer_group{memory, "tape"};
    tape->add(*::new (room) buffer<int>{memory, 100});
  }
  EXPECT_EQ(violation_recorder::only(violation_kind::scope_outlived),
            "epoch_resource 'steps' was destroyed while 'tape' was still open");
  EXPECT_EQ(upstream.outstanding, 0u);
}

}  // namespace
}  // namespace tidemark::test
