// SPDX-License-Identifier: Apache-2.0
// Strategy: the fake device must find unordered work on the same bytes, which a real device would not report.
// Each edge of the order once, with the race that exists without it; each way of releasing memory; graphs,
// whose branches run in any order; default streams and contexts.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>

#include "captures.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_units.hpp"

namespace tidemark {
namespace {

using gpu::capture_mode;
using gpu::status;
using test::failures_of;
using test::fake_device;
using test::unit;

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
    EXPECT_EQ(device.launch_kernel(on, {.name = name, .reads = {}, .writes = {range}}), status::success);
  }
  void read(gpu::stream_handle on, byte_range range, char const* name = "reader") {
    EXPECT_EQ(device.launch_kernel(on, {.name = name, .reads = {range}, .writes = {}}), status::success);
  }
  /// The graph of what `body` puts on stream `one`.
  gpu::graph_handle captured(std::function<void()> const& body) {
    return test::captured(device, one, capture_mode::relaxed, body);
  }
  gpu::executable_handle executable_of(gpu::graph_handle graph) {
    const gpu::executable_handle executable = test::instantiated(device, graph);
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
  bool races(std::function<void()> const& body) {
    return failures_of(body).find("race: ") != std::string::npos;
  }

  fake_device device{
      {.capacity_bytes = 64 * unit, .granularity_bytes = unit, .touchable = true, .devices = 2}};
  gpu::stream one{device}, other{device};
  std::uintptr_t address = 0;
  gpu::pool_handle pool = nullptr;
};

TEST_F(fake_order, two_accesses_to_the_same_bytes_race_if_one_writes_and_nothing_orders_them) {
  write(one, part(0, 100), "first");
  const std::string found = failures_of([&] { read(other, part(99, 10), "second"); });
  EXPECT_NE(found.find("race: 'second' reads"), std::string::npos) << found;
  EXPECT_NE(found.find("'first' writes"), std::string::npos) << found;
  EXPECT_TRUE(races([&] { write(other, part(0, 1)); }));
}

TEST_F(fake_order, reads_do_not_race_and_neither_do_other_bytes) {
  read(one, part(0, 100));
  read(other, part(0, 100));
  write(one, part(200, 100));
  write(other, part(300, 100));
  EXPECT_TRUE(races([&] { write(other, part(0, 1)); })) << "behind the other's read";
}

TEST_F(fake_order, a_wait_for_an_event_orders_what_is_before_the_record_and_behind_the_wait) {
  write(one, part(0, 100));
  const gpu::event point{one, device};
  write(one, part(200, 100), "behind the record");
  other.wait(point);
  read(other, part(0, 100));
  EXPECT_TRUE(races([&] { read(other, part(200, 100)); }));
}

TEST_F(fake_order, what_the_host_has_waited_for_is_before_what_it_launches_then) {
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

TEST_F(fake_order, what_one_thread_has_waited_for_another_knows_when_they_have_met) {
  for (bool meet : {false, true}) {
    write(one, part(0, 100));
    std::thread{[&] { one.synchronize(); }}.join();
    if (meet) device.threads_meet();
    EXPECT_EQ(races([&] { write(other, part(0, 100)); }), !meet);
    EXPECT_EQ(device.synchronize(), status::success);
  }
}

TEST_F(fake_order, a_free_does_not_wait_for_what_uses_the_memory) {
  write(one, part(0, 100), "late");
  const std::string found = failures_of([&] { EXPECT_EQ(device.free(address), status::success); });
  EXPECT_NE(found.find("cuMemFree takes memory"), std::string::npos) << found;
  EXPECT_NE(found.find("'late'"), std::string::npos) << found;
  EXPECT_NE(failures_of([&] { device.run_all(); }).find("its memory is not there"), std::string::npos);
  address = 0;
  device.recover();
}

TEST_F(fake_order, a_free_in_stream_order_comes_behind_that_streams_work_only) {
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

TEST_F(fake_order, unmapping_does_not_wait_for_what_uses_the_memory) {
  byte_range range;
  gpu::physical_handle handle = 0;
  EXPECT_EQ(device.reserve(unit, 0, range), status::success);
  EXPECT_EQ(device.create(0, unit, handle), status::success);
  for (bool wait : {true, false}) {
    EXPECT_EQ(device.map(range, handle), status::success);
    EXPECT_EQ(device.allow_access(range, 0), status::success);
    write(one, {range.begin, unit});
    if (wait) one.synchronize();
    const std::string found = failures_of([&] { EXPECT_EQ(device.unmap(range), status::success); });
    EXPECT_EQ(found.find("cuMemUnmap takes memory") == std::string::npos, wait) << found;
  }
  EXPECT_NE(failures_of([&] { device.run_all(); }).find("its memory is not there"), std::string::npos);
  device.recover();
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_order, nothing_is_launched_on_memory_that_was_freed_in_stream_order) {
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate_async(1000, pool, one, block), status::success);
  const gpu::executable_handle executable = executable_of(captured([&] { write(one, {block, 1000}); }));
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_EQ(device.free_async(block, one), status::success);
  EXPECT_NE(failures_of([&] { write(one, {block, 1}); }).find("was freed"), std::string::npos);
  EXPECT_NE(
      failures_of([&] { EXPECT_EQ(device.launch(executable, one), status::success); }).find("was freed"),
      std::string::npos);
  EXPECT_EQ(device.destroy_executable(executable), status::success);
  device.run_all();
}

TEST_F(fake_order, who_waits_for_the_device_has_waited_for_streams_that_are_gone) {
  gpu::stream_handle gone = nullptr;
  EXPECT_EQ(device.create_stream(gone), status::success);
  write(gone, part(0, 100));
  EXPECT_EQ(device.destroy_stream(gone), status::success);
  device.run_all();
  EXPECT_TRUE(races([&] { write(one, part(0, 100)); })) << "no thread has waited";
  EXPECT_EQ(device.synchronize(), status::success);
  write(one, part(0, 100));
}

TEST_F(fake_order, an_error_of_work_is_returned_by_every_later_call) {
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

TEST_F(fake_order, a_blocking_stream_and_the_legacy_one_wait_for_each_other) {
  gpu::stream_handle const blocking = device.create_blocking_stream();
  write(blocking, part(0, 100));
  write(nullptr, part(0, 100));
  write(blocking, part(0, 100));
  EXPECT_TRUE(races([&] { write(one, part(0, 100)); })) << "that one does not";
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

TEST_F(fake_order, the_default_stream_of_a_thread_is_its_own) {
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

TEST_F(fake_order, the_legacy_stream_cannot_be_used_while_a_blocking_one_captures) {
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
    EXPECT_EQ(device.begin_capture(one, capture_mode::relaxed), status::success);
    if (&use != std::end(uses) - 2)
      EXPECT_EQ(use(), status::success) << "beside one that does not wait for it";
    EXPECT_EQ(device.end_capture(one, graph), status::success);
    EXPECT_EQ(device.destroy_graph(graph), status::success);
  }
  EXPECT_EQ(device.free_async(block, nullptr), status::success);
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

// ---- graphs -----------------------------------------------------------------------------------------------

TEST_F(fake_order, branches_of_a_graph_race_where_nothing_orders_them) {
  for (bool same : {true, false}) {
    const gpu::graph_handle graph = captured([&] {
      fork([&] {
        write(one, part(0, 100));
        const std::string found = failures_of([&] { write(other, part(same ? 0 : 100, 100)); });
        EXPECT_EQ(found.find("race in a graph") != std::string::npos, same);
      });
      read(one, part(0, 200), "behind both");
    });
    EXPECT_EQ(device.destroy_graph(graph), status::success);
  }
}

TEST_F(fake_order, each_launch_of_a_graph_is_ordered_like_a_kernel) {
  const gpu::executable_handle executable =
      executable_of(captured([&] { write(one, part(0, 100), "captured"); }));
  write(other, part(0, 100), "beside it");
  EXPECT_TRUE(races([&] { EXPECT_EQ(device.launch(executable, one), status::success); }));
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_EQ(device.launch(executable, other), status::success) << "launches of one are ordered";
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(device.launch(executable, one), status::success);
  EXPECT_NE(failures_of([&] { EXPECT_EQ(device.free(address), status::success); }), "") << "it still runs";
  address = 0;
  EXPECT_NE(failures_of([&] { device.run_all(); }), "");
  device.recover();
  EXPECT_EQ(device.destroy_executable(executable), status::success);
}

TEST_F(fake_order, branches_of_a_graph_run_in_different_orders) {
  struct turn {
    std::vector<int>* taken;
    int number;
  };
  std::vector<int> taken;
  turn turns[] = {{&taken, 0}, {&taken, 1}, {&taken, 2}, {&taken, 3}};
  const auto note = [](void* of) {
    static_cast<turn*>(of)->taken->push_back(static_cast<turn*>(of)->number);
  };
  const auto put = [&](gpu::stream_handle on, int number) {
    EXPECT_EQ(device.launch_on_host(on, note, &turns[number]), status::success);
  };
  const gpu::executable_handle executable = executable_of(captured([&] {
    put(one, 0);
    fork([&] {
      put(one, 1);
      put(other, 2);
    });
    put(one, 3);
  }));
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 32; ++i) {
    taken.clear();
    EXPECT_EQ(device.launch(executable, one), status::success);
    one.synchronize();
    orders.insert(taken);
  }
  EXPECT_EQ(orders, (std::set<std::vector<int>>{{0, 1, 2, 3}, {0, 2, 1, 3}}));
  EXPECT_EQ(device.destroy_executable(executable), status::success);
}

// ---- contexts ---------------------------------------------------------------------------------------------

TEST(fake_contexts, one_is_made_where_a_device_is_made_current_or_a_call_needs_one) {
  fake_device device{{.granularity_bytes = unit, .devices = 3}};
  gpu::context_handle context = nullptr;
  gpu::device_number current = -1;
  EXPECT_EQ(device.current_context(context), status::success);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(device.current_device(current), status::success);
  EXPECT_EQ(current, 0);
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{})) << "to ask makes none";
  EXPECT_EQ(device.make_current(2), status::success);
  EXPECT_EQ(device.current_context(context), status::success);
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{2}));
  EXPECT_EQ(device.set_context(nullptr), status::success);
  EXPECT_EQ(device.current_device(current), status::success);
  EXPECT_EQ(current, 0);
  EXPECT_EQ(device.set_context(context), status::success);
  EXPECT_EQ(device.current_device(current), status::success);
  EXPECT_EQ(current, 2);
  std::thread{[&] {
    gpu::memory_info info;
    EXPECT_EQ(device.memory(info), status::success);
  }}.join();
  EXPECT_EQ(device.contexts(), (std::set<gpu::device_number>{0, 2})) << "a call on a thread without one";
}

}  // namespace
}  // namespace tidemark
