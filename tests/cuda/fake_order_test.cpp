// SPDX-License-Identifier: Apache-2.0
// Strategy: the fake device must find unordered work on the same bytes, which a real device would not report.
// Each edge of the order once, with the race that exists without it; each way of releasing memory; graphs,
// whose branches run in any order; default streams and contexts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_units.hpp"
#include "stream_turns.hpp"

namespace tidemark::test {
namespace {

using gpu::capture_mode;
using gpu::status;

/// Two streams and a block for kernels.
struct fake_order : ::testing::Test {
  fake_order() {
    EXPECT_EQ(device.allocate(unit, address), status::success);
    EXPECT_EQ(device.create_pool(0, pool), status::success);
  }
  ~fake_order() override {
    EXPECT_EQ(device.synchronize(), status::success);
    if (address != 0) EXPECT_EQ(device.free(address), status::success);
    EXPECT_EQ(device.destroy_pool(pool), status::success);
  }

  [[nodiscard]] byte_range part(std::size_t first, std::size_t bytes) const {
    return {address + first, bytes};
  }
  void write(gpu::stream_handle on, byte_range range, char const* name = "writer") {
    device.write(on, range, name);
  }
  void read(gpu::stream_handle on, byte_range range, char const* name = "reader") {
    EXPECT_EQ(device.launch_kernel(on, {.name = name, .reads = {range}, .writes = {}}), status::success);
  }
  /// Returns the work that `body` puts on stream `one`.
  gpu::executable_handle executable_of(std::function<void()> const& body) {
    const gpu::graph_handle graph = captured(device, one, capture_mode::relaxed, body);
    const gpu::executable_handle executable = instantiated(device, graph);
    EXPECT_EQ(device.destroy_graph(graph), status::success);
    return executable;
  }
  /// Puts one branch on stream `one` and the other on `other`, which are joined.
  void fork(std::function<void()> const& branches) {
    const gpu::event fork{one, device};
    EXPECT_EQ(device.wait(other, fork), status::success);
    branches();
    const gpu::event join{other, device};
    EXPECT_EQ(device.wait(one, join), status::success);
  }
  /// Returns true if `body` fails the test with all of these words.
  static bool fails_with(std::vector<char const*> const& words, std::function<void()> const& body) {
    const std::string found = failures_of(body);
    return std::ranges::all_of(words,
                               [&](char const* each) { return found.find(each) != std::string::npos; });
  }
  static bool races(std::function<void()> const& body) { return fails_with({"race: "}, body); }

  fake_device device{
      {.capacity_bytes = 64 * unit, .granularity_bytes = unit, .touchable = true, .devices = 2}};
  gpu::stream one{device}, other{device};
  std::uintptr_t address = 0;
  gpu::pool_handle pool = nullptr;
};

TEST_F(fake_order, unordered_accesses_to_the_same_bytes_race_if_one_access_writes) {
  write(one, part(0, 100), "first");
  EXPECT_TRUE(
      fails_with({"race: 'second' reads", "'first' writes"}, [&] { read(other, part(99, 10), "second"); }));
  EXPECT_TRUE(races([&] { write(other, part(0, 1)); }));
}

TEST_F(fake_order, reads_and_accesses_to_different_bytes_do_not_race) {
  read(one, part(0, 100));
  read(other, part(0, 100));
  write(one, part(200, 100));
  write(other, part(300, 100));
  EXPECT_TRUE(races([&] { write(other, part(0, 1)); })) << "behind the other's read";
}

TEST_F(fake_order, event_wait_orders_earlier_recorded_work_before_later_work) {
  write(one, part(0, 100));
  const gpu::event point{one, device};
  write(one, part(200, 100), "behind the record");
  other.wait(point);
  read(other, part(0, 100));
  EXPECT_TRUE(races([&] { read(other, part(200, 100)); }));
}

TEST_F(fake_order, awaited_work_precedes_later_launches_of_the_host) {
  write(one, part(0, 100));
  one.synchronize();
  write(other, part(0, 100));
  const gpu::event point{other, device};
  EXPECT_FALSE(point.done());
  device.run_all();
  EXPECT_TRUE(races([&] { write(one, part(0, 100)); })) << "it has run, but no thread has waited for it";
  EXPECT_EQ(device.synchronize(), status::success);
  write(other, part(0, 100));
  gpu::event asked{other, device};
  device.run_all();
  EXPECT_TRUE(asked.done());
  write(one, part(0, 100));
  asked.record(one);
  asked.wait();
  write(other, part(0, 100));
}

TEST_F(fake_order, wait_of_one_thread_orders_another_thread_after_they_meet) {
  for (bool meet : {false, true}) {
    write(one, part(0, 100));
    std::thread{[&] { one.synchronize(); }}.join();
    if (meet) device.threads_meet();
    EXPECT_EQ(races([&] { write(other, part(0, 100)); }), !meet);
    EXPECT_EQ(device.synchronize(), status::success);
  }
}

TEST_F(fake_order, free_does_not_wait_for_work_on_the_memory) {
  write(one, part(0, 100), "late");
  EXPECT_TRUE(fails_with({"cuMemFree takes memory", "'late'"},
                         [&] { EXPECT_EQ(device.free(address), status::success); }));
  EXPECT_TRUE(fails_with({"its memory is not there"}, [&] { device.run_all(); }));
  address = 0;
  device.recover();
}

TEST_F(fake_order, stream_ordered_free_waits_only_for_work_of_its_stream) {
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate_async(1000, pool, one, block), status::success);
  EXPECT_TRUE(races([&] { write(other, {block, 1000}); })) << "nothing says that the block is there yet";
  one.synchronize();
  EXPECT_NE(failures_of([&] { EXPECT_EQ(device.free_async(block, one), status::success); }), "");
  EXPECT_EQ(device.synchronize(), status::success);

  EXPECT_EQ(device.allocate_async(1000, pool, one, block), status::success);
  write(one, {block, 1000});
  EXPECT_EQ(device.free_async(block, one), status::success);
}

TEST_F(fake_order, unmap_does_not_wait_for_work_on_the_memory) {
  byte_range range;
  gpu::physical_handle handle = 0;
  EXPECT_EQ(device.reserve(unit, 0, range), status::success);
  EXPECT_EQ(device.create(0, unit, handle), status::success);
  for (bool wait : {true, false}) {
    EXPECT_EQ(device.map(range, handle), status::success);
    EXPECT_EQ(device.allow_access(range, 0), status::success);
    write(one, {range.begin, unit});
    if (wait) one.synchronize();
    EXPECT_EQ(
        fails_with({"cuMemUnmap takes memory"}, [&] { EXPECT_EQ(device.unmap(range), status::success); }),
        !wait);
  }
  EXPECT_TRUE(fails_with({"its memory is not there"}, [&] { device.run_all(); }));
  device.recover();
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_order, launch_on_stream_ordered_freed_memory_fails) {
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate_async(1000, pool, one, block), status::success);
  const gpu::executable_handle executable = executable_of([&] { write(one, {block, 1000}); });
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_EQ(device.free_async(block, one), status::success);
  EXPECT_TRUE(fails_with({"was freed"}, [&] { write(one, {block, 1}); }));
  EXPECT_TRUE(fails_with({"was freed"}, [&] { EXPECT_EQ(device.launch(executable, one), status::success); }));
  EXPECT_EQ(device.destroy_executable(executable), status::success);
  device.run_all();
}

TEST_F(fake_order, device_synchronize_covers_destroyed_streams) {
  gpu::stream_handle gone = nullptr;
  EXPECT_EQ(device.create_stream(gone), status::success);
  write(gone, part(0, 100));
  EXPECT_EQ(device.destroy_stream(gone), status::success);
  device.run_all();
  EXPECT_TRUE(races([&] { write(one, part(0, 100)); })) << "no thread has waited";
  EXPECT_EQ(device.synchronize(), status::success);
  write(one, part(0, 100));
}

TEST_F(fake_order, every_later_call_returns_the_error_of_failed_work) {
  byte_range range;
  EXPECT_EQ(device.reserve(unit, 0, range), status::success);
  write(one, {range.begin, 1});
  EXPECT_NE(failures_of([&] { EXPECT_EQ(device.synchronize(), status::illegal_address); }), "");
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate(1, block), status::illegal_address);
  EXPECT_EQ(device.synchronize(one), status::illegal_address);
  EXPECT_EQ(block, 0u);
  EXPECT_EQ(device.free_reservation(range), status::illegal_address) << "though it is gone";
  device.recover();
}

// ---- default streams --------------------------------------------------------------------------------------

TEST_F(fake_order, blocking_stream_and_legacy_stream_wait_for_each_other) {
  gpu::stream_handle const blocking = device.create_blocking_stream();
  write(blocking, part(0, 100));
  write(nullptr, part(0, 100));
  write(blocking, part(0, 100));
  EXPECT_TRUE(races([&] { write(one, part(0, 100)); })) << "the other stream does not wait";
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

TEST_F(fake_order, each_thread_has_a_separate_default_stream) {
  write(gpu::per_thread_stream, part(0, 100));
  write(gpu::per_thread_stream, part(0, 100));
  std::thread{[&] {
    EXPECT_TRUE(races([&] { write(gpu::per_thread_stream, part(0, 100)); }));
    EXPECT_EQ(device.synchronize(), status::success);
    write(nullptr, part(0, 100));
  }}.join();
  device.threads_meet();
  write(gpu::per_thread_stream, part(0, 100), "waits for the legacy stream");
}

TEST_F(fake_order, legacy_stream_is_unusable_while_a_blocking_stream_captures) {
  gpu::stream_handle const blocking = device.create_blocking_stream();
  const gpu::event point{device};
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate_async(1, pool, nullptr, block), status::success);
  const std::function<status()> uses[] = {
      [&] { return device.launch_kernel(nullptr, {.name = "k", .reads = {}, .writes = {}}); },
      [&] { return device.record(point, nullptr); },
      [&] { return device.wait(nullptr, point); },
      [&] { return device.free_async(block, nullptr); },
      [&] { return device.synchronize(gpu::stream_handle{}); },
  };
  for (auto const& use : uses) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(blocking, capture_mode::relaxed), status::success);
    EXPECT_EQ(use(), status::capture_implicit);
    EXPECT_EQ(device.end_capture(blocking, graph), status::capture_invalidated);
    in_capture(device, one, capture_mode::relaxed, [&] {
      if (&use != std::end(uses) - 2)
        EXPECT_EQ(use(), status::success) << "beside one that does not wait for it";
    });
  }
  EXPECT_EQ(device.free_async(block, nullptr), status::success);
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

// ---- graphs -----------------------------------------------------------------------------------------------

TEST_F(fake_order, unordered_branches_of_a_graph_race) {
  for (bool same : {true, false}) {
    in_capture(device, one, capture_mode::relaxed, [&] {
      fork([&] {
        write(one, part(0, 100));
        EXPECT_EQ(fails_with({"race in a graph"}, [&] { write(other, part(same ? 0 : 100, 100)); }), same);
      });
      read(one, part(0, 200), "behind both");
    });
  }
}

TEST_F(fake_order, each_launch_of_a_graph_is_ordered_like_a_kernel) {
  const gpu::executable_handle executable = executable_of([&] { write(one, part(0, 100), "captured"); });
  write(other, part(0, 100), "beside it");
  EXPECT_TRUE(races([&] { EXPECT_EQ(device.launch(executable, one), status::success); }));
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_EQ(device.launch(executable, other), status::success) << "launches of one are ordered";
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_NE(failures_of([&] { EXPECT_EQ(device.free(address), status::success); }), "")
      << "the work still runs";
  address = 0;
  EXPECT_NE(failures_of([&] { device.run_all(); }), "");
  device.recover();
  EXPECT_EQ(device.destroy_executable(executable), status::success);
}

TEST_F(fake_order, branches_of_a_graph_run_in_different_orders) {
  stream_turns turns{device};
  const gpu::executable_handle executable = executable_of([&] {
    turns.put_on(one, "a");
    fork([&] {
      turns.put_on(one, "b");
      turns.put_on(other, "c");
    });
    turns.put_on(one, "d");
  });
  std::set<std::vector<std::string>> orders;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(device.launch(executable, one), status::success);
    one.synchronize();
    orders.emplace(turns.taken().end() - 4, turns.taken().end());
  }
  EXPECT_EQ(orders, (std::set<std::vector<std::string>>{{"a", "b", "c", "d"}, {"a", "c", "b", "d"}}));
  EXPECT_EQ(device.destroy_executable(executable), status::success);
}

// ---- contexts ---------------------------------------------------------------------------------------------

TEST(fake_contexts, context_is_created_by_make_current_or_a_call_that_needs_a_context) {
  fake_device device{{.granularity_bytes = unit, .devices = 3}};
  gpu::context_handle context = nullptr;
  gpu::device_number current = -1;
  EXPECT_EQ(device.current_context(context), status::success);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(device.current_device(current), status::success);
  EXPECT_EQ(current, 0);
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{})) << "a query makes no context";
  EXPECT_EQ(device.make_current(2), status::success);
  EXPECT_EQ(device.current_context(context), status::success);
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{2}));
  EXPECT_EQ(device.set_context(nullptr), status::success);
  EXPECT_EQ(device.current_now(), 0);
  EXPECT_EQ(device.set_context(context), status::success);
  EXPECT_EQ(device.current_now(), 2);
  std::thread{[&] {
    gpu::memory_info info;
    EXPECT_EQ(device.memory(info), status::success);
  }}.join();
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{0, 2})) << "a call on a thread without one";
}

}  // namespace
}  // namespace tidemark::test
