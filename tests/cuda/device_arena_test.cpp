// SPDX-License-Identifier: Apache-2.0
// Strategy: the additional behaviour of arenas on a device. A fake device has memory that must not be
// touched, so a touch is a crash. Driver calls of the arena are counted, and work on streams runs only when
// something waits for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

constexpr arena_options small_arena{.reserve = 32 * unit, .name = "step"};

std::uintptr_t address(void const* block) { return reinterpret_cast<std::uintptr_t>(block); }

template <class Arena>
concept can_be_suspended = requires(Arena& arena) { arena.suspend(); };
template <class Arena>
concept pushes_zeroed = requires(Arena& arena) { arena.template push_array<int>(1); };
template <class Scope>
concept ends_after_events = requires(Scope& scope, gpu::event_handle event) { scope.end_after(event); };

static_assert(can_be_suspended<device_arena> && !can_be_suspended<arena> && !can_be_suspended<pinned_arena>);
static_assert(!pushes_zeroed<device_arena> && pushes_zeroed<pinned_arena> && pushes_zeroed<managed_arena>);
static_assert(ends_after_events<device_arena::scope> && ends_after_events<pinned_arena::scope> &&
              !ends_after_events<arena::scope>);
template <class Scope, class Behind>
concept ends_after = requires(Scope& scope, Behind behind) { scope.end_after(behind); };
static_assert(ends_after<device_arena::scope, gpu::stream_handle> &&
              ends_after<pinned_arena::scope, gpu::stream const&> &&
              !ends_after<device_arena::scope, std::nullptr_t> &&
              !ends_after<arena::scope, gpu::stream_handle>);

/// An arena of one stream, and another stream.
struct small_device_arena : ::testing::Test {
  fake_device device{in_units()};
  gpu::stream stream{device}, other{device};
  device_arena step{small_arena, stream, device};
};

// ---- making one ----

TEST(device_arena, constructors_take_arena_options_and_memory_options) {
  fake_device device{in_units()};
  const gpu::stream stream{device};
  device_arena on_stream{{.reserve = 4 * unit, .name = "step"}, stream, device};
  device_arena in_large_pieces{
      {.name = "large"}, gpu::virtual_memory_options{.stream = stream, .handle_bytes = 4 * unit}, device};
  device_arena plain{stream, device};
  device_arena in_two_parts{gpu::virtual_memory{{.stream = stream}, device}, {.reserve = 2 * unit}};
  EXPECT_STREQ(on_stream.name(), "step");
  EXPECT_EQ(on_stream.stats().reserved_bytes, 4 * unit);
  EXPECT_EQ(plain.stats().reserved_bytes, 64 * unit) << "all memory of the device";
  (void)in_large_pieces.allocate(1);
  EXPECT_EQ(in_large_pieces.stats().committed_bytes, unit);
  EXPECT_EQ(in_two_parts.stats().reserved_bytes, 2 * unit);
}

TEST(device_arena, uses_the_default_driver_by_default) {
  fake_device device{in_units()};
  gpu::driver* const before = gpu::set_default_driver(&device);
  {
    device_arena step{{.reserve = unit}}, other;
    pinned_arena staging{{.reserve = unit}};
    managed_arena shared{{.reserve = unit}};
    EXPECT_TRUE(device.accessible(step.allocate(unit), unit));
    EXPECT_EQ(device.count("cuMemHostAlloc") + device.count("cuMemAllocManaged"), 2u);
  }
  gpu::set_default_driver(before);
}

// ---- memory ----

TEST(device_arena, commits_in_steps_of_whole_units) {
  fake_device device{in_units()};
  device_arena step{{.reserve = 32 * unit, .commit_step = 3 * unit + 1}, gpu::stream_handle{}, device};
  (void)step.allocate(1);
  EXPECT_EQ(device.mapped_bytes(), 4 * unit);
  EXPECT_EQ(step.stats().committed_bytes, 4 * unit);
}

TEST(device_arena, exhausted_device_throws_out_of_memory_and_changes_nothing) {
  fake_device device{in_units(8)};
  device_arena step{small_arena, gpu::stream_handle{}, device};
  (void)step.allocate(6 * unit + 1);
  const arena_stats before = step.stats();
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(2 * unit); });
  EXPECT_EQ(error.report().committed_bytes, 7 * unit);
  EXPECT_EQ(error.report().largest_bytes, unit - 256);
  EXPECT_NE(std::string{error.what()}.find("device memory is exhausted"), std::string::npos);
  EXPECT_EQ(step.stats().used_bytes, before.used_bytes);
  EXPECT_EQ(step.stats().committed_bytes, before.committed_bytes);
  EXPECT_EQ(device.physical_bytes(), 7 * unit);
  (void)step.allocate(2 * unit - 256);
  EXPECT_EQ(device.physical_bytes(), 8 * unit);
}

TEST(device_arena, allocations_of_a_large_arena_are_fast) {
  fake_device device{{.capacity_bytes = 140 * GiB}};
  device_arena step{{.name = "large"}, gpu::stream_handle{}, device};
  (void)step.allocate(100 * GiB);
  std::size_t most_handles = 0, grown = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    const std::size_t handles = device.count("cuMemCreate");
    const std::size_t committed = step.stats().committed_bytes;
    (void)step.allocate((i * 7919) % (16 * MiB));
    most_handles = std::max(most_handles, device.count("cuMemCreate") - handles);
    grown = std::max(grown, step.stats().committed_bytes - committed);
  }
  EXPECT_GT(step.position(), 110 * GiB);
  EXPECT_LT(most_handles, 35u) << "16 of 64 MiB and some smaller ones, of some 40 us each";
  EXPECT_LE(grown, 1 * GiB + 16 * MiB);
  EXPECT_LE(step.stats().committed_bytes, step.position() + 1 * GiB);
}

TEST(device_arena, trim_leaves_at_most_a_quarter_more_than_is_committed) {
  fake_device device{in_units()};
  device_arena step{{.reserve = 64 * unit}, gpu::stream_handle{}, device};
  (void)step.allocate(64 * unit);
  for (std::size_t keep = 64; keep-- > 0;) {
    step.reset();
    EXPECT_EQ(step.trim(keep * unit), unit);
    EXPECT_EQ(step.stats().committed_bytes, keep * unit);
    EXPECT_LE(device.physical_bytes(), keep * unit * 5 / 4);
  }
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(small_device_arena, out_of_memory_message_states_the_reason) {
  device.fail_in("cuMemCreate", 0, status::illegal_address);
  {
    const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(1); });
    EXPECT_STREQ(error.what(),
                 "step: out of memory: 1 bytes aligned to 256 requested, 0 used of 0 committed and 2097152 "
                 "reserved; the largest that would fit is 0 bytes; CUDA_ERROR_ILLEGAL_ADDRESS");
  }
  // Impossible requests have their own reason.
  {
    const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(SIZE_MAX); });
    EXPECT_STREQ(error.report().because, "");
  }
}

TEST_F(small_device_arena, reuse_does_not_wait_and_trim_waits_for_the_stream) {
  void* const block = step.allocate(8 * unit);
  const test::noting_work user{device, stream, {address(block), 8 * unit}};
  step.reset();
  EXPECT_EQ(step.allocate(unit), block);
  EXPECT_FALSE(user.has_run) << "later work of the stream waits";
  EXPECT_EQ(step.trim(), 7 * unit);
  EXPECT_TRUE(user.had_memory);
  EXPECT_EQ(device.physical_bytes(), unit);
  EXPECT_EQ(step.stats().committed_bytes, unit);
}

// ---- captures ----

TEST_F(small_device_arena, serves_held_memory_without_a_call_during_a_capture) {
  (void)step.allocate(4 * unit);
  step.reset();
  {
    const test::empty_capture graph{device, stream};
    EXPECT_EQ(calls_of(device,
                       [&] {
                         device_arena::scope scope{step};
                         (void)scope.allocate(3 * unit);
                         (void)step.allocate(unit);
                       }),
              call_names{});
  }
  EXPECT_EQ(device.calls_during_capture(), call_names{});
}

TEST(device_arena, grows_in_a_capture_by_a_commit_and_by_a_chunk) {
  fake_device device{in_units()};
  const gpu::stream stream{device};
  for (const std::size_t reserve : {32 * unit, 4 * unit}) {
    device_arena step{{.reserve = reserve, .name = "step"}, stream, device};
    void* const before = step.allocate(4 * unit);
    void* during = nullptr;
    {
      const test::empty_capture graph{device, stream};
      during = step.allocate(2 * unit);
      EXPECT_TRUE(device.accessible(before, 4 * unit));
      EXPECT_TRUE(device.accessible(during, 2 * unit));
    }
    EXPECT_TRUE(device.accessible(during, 2 * unit)) << "the graph may use it";
    step.check_invariants();
    step.reset();
    EXPECT_EQ(step.allocate(4 * unit), before);
    step.reset();
    EXPECT_GT(step.trim(), 0u);
  }
}

// ---- end_after ----

TEST_F(small_device_arena, end_after_a_stream_delays_reuse_until_the_stream_is_done) {
  device_arena::scope scope{step};
  void* const block = scope.allocate(unit);
  const test::noting_work reader{device, other, {address(block), unit}};
  scope.end_after(other);
  EXPECT_FALSE(scope);
  EXPECT_FALSE(reader.has_run) << "nothing waits here";
  EXPECT_EQ(step.allocate(unit), block);
  const test::noting_work writer{device, stream, {address(block), unit}};
  device.run(stream);
  EXPECT_TRUE(reader.has_run && writer.has_run);
  EXPECT_LT(reader.turn, writer.turn);
}

TEST_F(small_device_arena, end_after_a_foreign_capturing_stream_is_a_violation) {
  const test::violation_recorder violations;
  device_arena::scope scope{step};
  (void)scope.allocate(unit);
  {
    const test::empty_capture graph{device, other};
    scope.end_after(other);
  }
  EXPECT_EQ(violations.count(violation_kind::open_capture), 1u);
}

TEST(pinned_arena, end_after_a_stream_waits_for_the_stream) {
  fake_device device{in_units()};
  const gpu::stream other{device};
  pinned_arena step{small_arena, unit, device};
  pinned_arena::scope scope{step};
  (void)scope.allocate(100);
  const test::noting_work reader{device, other};
  scope.end_after(other);
  EXPECT_TRUE(reader.has_run);
}

TEST_F(small_device_arena, end_after_an_event_ends_the_scope) {
  const test::violation_recorder violations;
  const gpu::event done{device};
  device_arena::scope outer{step};
  (void)outer.allocate(100);
  {
    device_arena::scope inner{step};
    (void)inner.allocate(100);
    inner.end_after(done.get());
    EXPECT_EQ(step.position(), 256u);
    inner.end_after(done.get());
    EXPECT_EQ(device.count("cuStreamWaitEvent"), 1u) << "the work has already ended";
  }
  device_arena::scope inner{step};
  outer.end_after(done);
  EXPECT_EQ(violations.count(violation_kind::scope_order), 1u);
}

// ---- suspend and resume ----

TEST_F(small_device_arena, suspend_keeps_addresses_marks_and_scopes) {
  void* const first = step.allocate(unit);
  const arena_mark mark = step.mark();
  device_arena::scope scope{step};
  void* const second = scope.allocate(3 * unit);
  const arena_stats before = step.stats();
  EXPECT_FALSE(step.is_suspended());
  step.suspend();
  EXPECT_TRUE(step.is_suspended());
  EXPECT_EQ(device.physical_bytes(), 0u);
  EXPECT_EQ(device.reserved_bytes(), 32 * unit);
  EXPECT_TRUE(step.owns(second));
  step.resume();
  EXPECT_TRUE(device.accessible(first, 4 * unit));
  EXPECT_EQ(step.stats().committed_bytes, before.committed_bytes);
  EXPECT_EQ(step.position(), before.used_bytes);
  scope.end();
  EXPECT_EQ(step.allocate(1), second);
  step.rewind(mark);
  EXPECT_EQ(step.position(), unit);
  step.check_invariants();
}

TEST(device_arena, suspended_arena_reports_its_suspended_bytes) {
  fake_device device{in_units()};
  device_arena step{{.reserve = 4 * unit}, gpu::stream_handle{}, device};
  (void)step.allocate(3 * unit);
  (void)step.allocate(3 * unit);
  EXPECT_EQ(step.stats().suspended_bytes, 0u);
  step.suspend();
  arena_stats now = step.stats();
  EXPECT_EQ(now.committed_bytes, 0u);
  EXPECT_EQ(now.suspended_bytes, 6 * unit);
  EXPECT_EQ(now.reserved_bytes, 8 * unit);
  EXPECT_EQ(now.used_bytes, 6 * unit);
  step.check_invariants();
  step.reset();
  EXPECT_EQ(step.trim(unit), 5 * unit);
  now = step.stats();
  EXPECT_EQ(now.suspended_bytes, unit);
  step.resume();
  now = step.stats();
  EXPECT_EQ(now.committed_bytes, unit);
  EXPECT_EQ(now.suspended_bytes, 0u);
  EXPECT_EQ(device.physical_bytes(), unit);
}

TEST_F(small_device_arena, suspended_arena_serves_its_held_addresses_and_refuses_growth) {
  (void)step.allocate(4 * unit);
  step.reset();
  step.suspend();
  void* const block = step.allocate(4 * unit);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)step.allocate(1); });
  EXPECT_STREQ(error.report().because, "it is suspended");
  EXPECT_EQ(error.report().committed_bytes, 0u);
  EXPECT_EQ(device.physical_bytes(), 0u);
  step.resume();
  EXPECT_TRUE(device.accessible(block, 4 * unit));
  (void)step.allocate(1);
}

TEST(device_arena, suspended_arena_can_be_released_and_destroyed) {
  fake_device device{in_units()};
  device_arena step{{.reserve = 2 * unit}, gpu::stream_handle{}, device};
  (void)step.allocate(2 * unit);
  (void)step.allocate(2 * unit);
  step.suspend();
  step.release();
  EXPECT_EQ(device.reserved_bytes(), 0u);
  EXPECT_THROW((void)step.allocate(1), out_of_memory);
  step.resume();
  (void)step.allocate(1);
  step.suspend();
}

// ---- memory that the host can touch ----

TEST(pinned_arena, consists_of_one_block_of_the_driver) {
  fake_device device{in_units()};
  pinned_arena staging{2 * unit, device};
  EXPECT_EQ(calls_of(device,
                     [&] {
                       (void)staging.allocate(unit);
                       EXPECT_THROW((void)staging.allocate(2 * unit), out_of_memory)
                           << "the arena has a fixed size";
                       staging.release();
                       (void)staging.allocate(unit);
                     }),
            (call_names{"cuCtxGetDevice", "cuMemFreeHost", "cuCtxGetDevice", "cuMemHostAlloc"}));
}

TEST(managed_arena, is_accessible_from_host_and_device) {
  fake_device device{in_units()};
  managed_arena shared{2 * unit, device};
  const std::span<int> numbers = shared.push_array<int>(100);
  EXPECT_EQ(address(numbers.data()) % 256, 0u);
  EXPECT_TRUE(device.accessible(numbers.data(), numbers.size_bytes()));
  EXPECT_EQ(numbers[99], 0);
}

}  // namespace
}  // namespace tidemark::test
