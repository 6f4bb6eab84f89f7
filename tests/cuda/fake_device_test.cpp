// SPDX-License-Identifier: Apache-2.0
// Strategy: the device part is tested on a fake device, so the fake itself must refuse what CUDA refuses:
// each documented rule is broken and followed once, and a refused call changes nothing. Refusals of a capture
// are tested in all modes, on the capturing thread and on another.
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_units.hpp"
#include "stream_turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tidemark::test {
namespace {

using gpu::capture_mode;
using gpu::status;

void in_another_thread(std::function<void()> const& body) { std::thread{body}.join(); }

void count_up(void* number) { ++*static_cast<int*>(number); }

/// A small device, and the calls that must succeed.
struct on_fake_device : ::testing::Test {
  explicit on_fake_device(fake_device_options const& options = {.capacity_bytes = 16 * unit,
                                                                .granularity_bytes = unit})
      : device{options} {}

  byte_range reserved(std::size_t bytes) {
    byte_range range;
    EXPECT_EQ(device.reserve(bytes, 0, range), status::success);
    return range;
  }
  gpu::physical_handle created(std::size_t bytes) {
    gpu::physical_handle handle = 0;
    EXPECT_EQ(device.create(0, bytes, handle), status::success);
    return handle;
  }
  /// Memory there that goes when it is unmapped.
  void map(byte_range range) {
    const gpu::physical_handle handle = created(range.size);
    EXPECT_EQ(device.map(range, handle), status::success);
    EXPECT_EQ(device.release(handle), status::success);
  }
  void unmap_and_free(byte_range range) {
    EXPECT_EQ(device.unmap(range), status::success);
    EXPECT_EQ(device.free_reservation(range), status::success);
  }
  gpu::pool_handle pool() {
    gpu::pool_handle made = nullptr;
    EXPECT_EQ(device.create_pool(0, made), status::success);
    return made;
  }
  std::uintptr_t allocated(std::size_t bytes) {
    std::uintptr_t block = 0;
    EXPECT_EQ(device.allocate(bytes, block), status::success);
    return block;
  }
  std::uintptr_t allocated(std::size_t bytes, gpu::pool_handle from, gpu::stream_handle on) {
    std::uintptr_t block = 0;
    EXPECT_EQ(device.allocate_async(bytes, from, on, block), status::success);
    return block;
  }
  std::size_t free_bytes() {
    gpu::memory_info info;
    EXPECT_EQ(device.memory(info), status::success);
    return info.free_bytes;
  }
  gpu::graph_handle captured(gpu::stream_handle on, std::function<void()> const& body) {
    return test::captured(device, on, capture_mode::global, body);
  }
  gpu::executable_handle instantiated(gpu::graph_handle graph) { return test::instantiated(device, graph); }
  std::size_t nodes(gpu::graph_handle graph) {
    std::size_t count = 0;
    EXPECT_EQ(device.node_count(graph, count), status::success);
    return count;
  }
  void destroy(gpu::graph_handle graph) { EXPECT_EQ(device.destroy_graph(graph), status::success); }
  void destroy(gpu::executable_handle executable) {
    EXPECT_EQ(device.destroy_executable(executable), status::success);
  }

  fake_device device;
  gpu::stream queue{device};
};

/// A fake device with memory on the host.
struct on_touchable_device : on_fake_device {
  on_touchable_device()
      : on_fake_device{{.capacity_bytes = 16 * unit, .granularity_bytes = unit, .touchable = true}} {}
};

using fake_addresses = on_fake_device;
using fake_touchable_addresses = on_touchable_device;
using fake_blocks = on_fake_device;
using fake_touchable_blocks = on_touchable_device;
using fake_pool = on_fake_device;
using fake_stream = on_fake_device;
using fake_capture = on_fake_device;
using fake_graph = on_fake_device;
using fake_calls = on_fake_device;

// ---- refusals ----

/// A device with one of everything that calls refer to: live, and destroyed.
struct fake_world : on_fake_device {
  fake_world() {
    for (byte_range each : {part(0, 2), part(2, 1), part(4, 1)}) map(each);
    EXPECT_EQ(device.release(released), status::success);
    EXPECT_EQ(device.allocate_managed(100, managed), status::success);
    EXPECT_EQ(device.allocate_pinned(100, pinned), status::success);
    EXPECT_EQ(device.free(freed), status::success);
    EXPECT_EQ(device.destroy_pool(gone_pool), status::success);
    EXPECT_EQ(device.create_stream(gone), status::success);
    EXPECT_EQ(device.destroy_stream(gone), status::success);
    EXPECT_EQ(device.create_event(gone_event), status::success);
    EXPECT_EQ(device.destroy_event(gone_event), status::success);
    executable = instantiated(graph);
    destroy(gone_executable = instantiated(gone_graph));
    destroy(gone_graph);
  }
  ~fake_world() override {
    queue.synchronize();
    EXPECT_EQ(device.unmap(part(0, 3)), status::success) << "neighbours in one call";
    EXPECT_EQ(device.unmap(part(4, 1)), status::success);
    EXPECT_EQ(device.release(handle), status::success);
    EXPECT_EQ(device.free_reservation(range), status::success);
    EXPECT_EQ(device.free_async(block, queue), status::success) << "an ordinary block, in stream order";
    EXPECT_EQ(device.free(managed), status::success);
    EXPECT_EQ(device.free_pinned(pinned), status::success);
    EXPECT_EQ(device.free(pooled), status::success) << "a pool's block, at once";
    EXPECT_EQ(device.destroy_pool(from), status::success);
    destroy(executable);
    destroy(graph);
    queue.synchronize();
    EXPECT_EQ(device.outstanding, 0u);
  }

  [[nodiscard]] byte_range part(std::size_t first, std::size_t n) const {
    return {range.begin + first * unit, n * unit};
  }
  /// Sums that a rejected call must not change.
  std::vector<std::size_t> sums() {
    return {device.reserved_bytes(), device.physical_bytes(), device.mapped_bytes(), device.outstanding,
            free_bytes()};
  }

  gpu::stream idle{device};
  gpu::event point{device};
  byte_range range = reserved(6 * unit), made;
  gpu::physical_handle handle = created(2 * unit), released = created(unit), none = 0;
  gpu::shareable_handle shared;
  std::uintptr_t block = allocated(1000), freed = allocated(1000), managed = 0, pinned = 0, more = 0;
  gpu::pool_handle from = pool(), gone_pool = pool(), new_pool = nullptr;
  std::uintptr_t pooled = allocated(unit, from, queue);
  gpu::stream_handle gone = nullptr;
  gpu::event_handle gone_event = nullptr;
  gpu::graph_handle graph = captured(queue, [] {}), gone_graph = captured(queue, [] {}), new_graph = nullptr;
  gpu::executable_handle executable = nullptr, gone_executable = nullptr, new_executable = nullptr;
  bool capturing = false;
  std::size_t count = 0;
  int runs = 0;
};

/// A call, its fault in words, and the returned status.
struct refused_call {
  char const* what;
  std::function<status(fake_world&)> call;
};
struct refused_calls {
  status result;
  std::vector<refused_call> calls;
};

const refused_calls wrong_calls[] = {
    {status::invalid_value,
     {{"reserve nothing", [](auto& w) { return w.device.reserve(0, 0, w.made); }},
      {"reserve part of a granule", [](auto& w) { return w.device.reserve(unit + 1, 0, w.made); }},
      {"reserve at 3 granules", [](auto& w) { return w.device.reserve(unit, 3 * unit, w.made); }},
      {"free a first part", [](auto& w) { return w.device.free_reservation(w.part(0, 1)); }},
      {"free a last part", [](auto& w) { return w.device.free_reservation(w.part(1, 5)); }},
      {"free what is mapped", [](auto& w) { return w.device.free_reservation(w.range); }},
      {"create nothing", [](auto& w) { return w.device.create(0, 0, w.none); }},
      {"create half a granule", [](auto& w) { return w.device.create(0, unit / 2, w.none); }},
      {"export memory that was made for no export",
       [](auto& w) { return w.device.export_handle(w.handle, gpu::handle_type::fabric, w.shared); }},
      {"release an unknown handle", [](auto& w) { return w.device.release(77); }},
      {"release twice", [](auto& w) { return w.device.release(w.released); }},
      {"map a part of a handle", [](auto& w) { return w.device.map(w.part(5, 1), w.handle); }},
      {"map over mappings", [](auto& w) { return w.device.map(w.part(0, 2), w.handle); }},
      {"map over an end of one", [](auto& w) { return w.device.map(w.part(3, 2), w.handle); }},
      {"map beyond the end", [](auto& w) { return w.device.map(w.part(5, 2), w.handle); }},
      {"map a released handle", [](auto& w) { return w.device.map(w.part(5, 1), w.released); }},
      {"unmap a first part", [](auto& w) { return w.device.unmap(w.part(0, 1)); }},
      {"unmap a last part and more", [](auto& w) { return w.device.unmap(w.part(1, 2)); }},
      {"unmap with a gap behind", [](auto& w) { return w.device.unmap(w.part(0, 4)); }},
      {"unmap over a gap", [](auto& w) { return w.device.unmap(w.part(2, 3)); }},
      {"unmap a gap", [](auto& w) { return w.device.unmap(w.part(3, 1)); }},
      {"unmap nothing", [](auto& w) { return w.device.unmap(w.part(0, 0)); }},
      {"access to a part", [](auto& w) { return w.device.allow_access(w.part(0, 1), 0); }},
      {"access over a gap", [](auto& w) { return w.device.allow_access(w.part(0, 5), 0); }},
      {"access to nothing", [](auto& w) { return w.device.allow_access(w.part(0, 0), 0); }},
      {"allocate nothing", [](auto& w) { return w.device.allocate(0, w.more); }},
      {"managed nothing", [](auto& w) { return w.device.allocate_managed(0, w.more); }},
      {"pinned nothing", [](auto& w) { return w.device.allocate_pinned(0, w.more); }},
      {"free inside a block", [](auto& w) { return w.device.free(w.block + 1); }},
      {"free twice", [](auto& w) { return w.device.free(w.freed); }},
      {"free pinned memory", [](auto& w) { return w.device.free(w.pinned); }},
      {"free a block as pinned", [](auto& w) { return w.device.free_pinned(w.block); }},
      {"nothing from a pool", [](auto& w) { return w.device.allocate_async(0, w.from, w.queue, w.more); }},
      {"from a pool that is gone",
       [](auto& w) { return w.device.allocate_async(1, w.gone_pool, w.queue, w.more); }},
      {"free null in order", [](auto& w) { return w.device.free_async(0, w.queue); }},
      {"free inside in order", [](auto& w) { return w.device.free_async(w.pooled + 256, w.queue); }},
      {"free twice in order", [](auto& w) { return w.device.free_async(w.freed, w.queue); }},
      {"destroy a pool twice", [](auto& w) { return w.device.destroy_pool(w.gone_pool); }},
      {"trim a pool that is gone", [](auto& w) { return w.device.trim_pool(w.gone_pool, 0); }},
      {"a pool's threshold", [](auto& w) { return w.device.set_release_threshold(w.gone_pool, 0); }},
      {"launch no function", [](auto& w) { return w.device.launch_on_host(nullptr, nullptr, nullptr); }},
      {"destroy a graph twice", [](auto& w) { return w.device.destroy_graph(w.gone_graph); }},
      {"count its nodes", [](auto& w) { return w.device.node_count(w.gone_graph, w.count); }},
      {"instantiate it", [](auto& w) { return w.device.instantiate(w.gone_graph, w.new_executable); }},
      {"destroy an executable twice", [](auto& w) { return w.device.destroy_executable(w.gone_executable); }},
      {"launch it", [](auto& w) { return w.device.launch(w.gone_executable, w.queue); }},
      {"update it", [](auto& w) { return w.device.update(w.gone_executable, w.graph); }},
      {"update by a graph that is gone",
       [](auto& w) { return w.device.update(w.executable, w.gone_graph); }}}},
    {status::invalid_device,
     {{"create elsewhere", [](auto& w) { return w.device.create(1, unit, w.none); }},
      {"make no device current", [](auto& w) { return w.device.make_current(1); }},
      {"access of no device", [](auto& w) { return w.device.allow_access(w.part(0, 2), 1); }}}},
    {status::out_of_memory,
     {{"create too much", [](auto& w) { return w.device.create(0, 17 * unit, w.none); }},
      {"allocate too much", [](auto& w) { return w.device.allocate(SIZE_MAX, w.more); }},
      {"too much from a pool",
       [](auto& w) { return w.device.allocate_async(16 * unit, w.from, w.queue, w.more); }}}},
    {status::invalid_handle,
     {{"destroy a stream twice", [](auto& w) { return w.device.destroy_stream(w.gone); }},
      {"destroy the default stream", [](auto& w) { return w.device.destroy_stream(nullptr); }},
      {"synchronise it", [](auto& w) { return w.device.synchronize(w.gone); }},
      {"launch there", [](auto& w) { return w.device.launch_on_host(w.gone, &count_up, &w.runs); }},
      {"launch a graph there", [](auto& w) { return w.device.launch(w.executable, w.gone); }},
      {"record there", [](auto& w) { return w.device.record(w.point, w.gone); }},
      {"wait there", [](auto& w) { return w.device.wait(w.gone, w.point); }},
      {"capture there", [](auto& w) { return w.device.begin_capture(w.gone, capture_mode::relaxed); }},
      {"end a capture there", [](auto& w) { return w.device.end_capture(w.gone, w.new_graph); }},
      {"ask there", [](auto& w) { return w.device.is_capturing(w.gone, w.capturing); }},
      {"free there", [](auto& w) { return w.device.free_async(w.pooled, w.gone); }},
      {"allocate there", [](auto& w) { return w.device.allocate_async(1, w.from, w.gone, w.more); }},
      {"destroy an event twice", [](auto& w) { return w.device.destroy_event(w.gone_event); }},
      {"ask for it", [](auto& w) { return w.device.query(w.gone_event); }},
      {"wait for it", [](auto& w) { return w.device.synchronize(w.gone_event); }},
      {"record it", [](auto& w) { return w.device.record(w.gone_event, nullptr); }},
      {"let a stream wait for it", [](auto& w) { return w.device.wait(nullptr, w.gone_event); }},
      {"ask for no event", [](auto& w) { return w.device.query(nullptr); }}}},
    {status::capture_unsupported,
     {{"capture the default stream",
       [](auto& w) { return w.device.begin_capture(nullptr, capture_mode::relaxed); }}}},
    {status::illegal_state,
     {{"end no capture", [](auto& w) { return w.device.end_capture(w.queue, w.new_graph); }}}},
};

/// Calls in a relaxed capture of `queue`, which each of them invalidates.
const refused_calls calls_that_end_a_capture[] = {
    {status::illegal_state,
     {{"begin again", [](auto& w) { return w.device.begin_capture(w.queue, capture_mode::global); }}}},
    {status::capture_unsupported,
     {{"synchronise", [](auto& w) { return w.device.synchronize(w.queue); }},
      {"synchronise the device", [](auto& w) { return w.device.synchronize(); }},
      {"synchronise the device elsewhere",
       [](auto& w) {
         status result{};
         in_another_thread([&] { result = w.device.synchronize(); });
         return result;
       }},
      {"launch a graph", [](auto& w) { return w.device.launch(w.executable, w.queue); }}}},
    {status::invalid_value,
     {{"launch no function", [](auto& w) { return w.device.launch_on_host(w.queue, nullptr, nullptr); }},
      {"from no pool", [](auto& w) { return w.device.allocate_async(1, nullptr, w.queue, w.more); }},
      {"free no block", [](auto& w) { return w.device.free_async(12345, w.queue); }}}},
    {status::out_of_memory,
     {{"too much",
       [](auto& w) {
         (void)w.allocated(unit, w.from, w.queue);
         return w.device.allocate_async(16 * unit, w.from, w.queue, w.more);
       }}}},
    {status::capture_isolation,
     {{"wait for an event outside", [](auto& w) { return w.device.wait(w.queue, w.point); }}}},
    {status::captured_event,
     {{"poll an event inside",
       [](auto& w) {
         EXPECT_EQ(w.device.record(w.point, w.queue), status::success);
         return w.device.query(w.point);
       }}}},
    {status::capture_implicit,
     {{"draw in the default stream",
       [](auto& w) {
         EXPECT_EQ(w.device.record(w.point, w.queue), status::success);
         return w.device.wait(nullptr, w.point);
       }}}},
    {status::capture_unmatched,
     {{"end it where it did not begin",
       [](auto& w) {
         EXPECT_EQ(w.device.record(w.point, w.queue), status::success);
         EXPECT_EQ(w.device.wait(w.idle, w.point), status::success);
         return w.device.end_capture(w.idle, w.new_graph);
       }}}},
};

TEST_F(fake_world, refuses_wrong_calls_and_changes_nothing) {
  for (auto const& [result, calls] : wrong_calls) {
    for (refused_call const& each : calls) {
      const std::vector<std::size_t> before = sums();
      EXPECT_EQ(each.call(*this), result) << each.what;
      EXPECT_EQ(sums(), before) << each.what;
    }
  }
}

TEST_F(fake_world, ends_a_capture_without_a_graph_after_a_refused_call) {
  for (auto const& [result, calls] : calls_that_end_a_capture) {
    for (refused_call const& each : calls) {
      SCOPED_TRACE(each.what);
      const std::vector<std::size_t> before = sums();
      EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
      EXPECT_EQ(each.call(*this), result);
      EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::capture_invalidated);
      EXPECT_EQ(device.synchronize(queue), status::capture_invalidated);
      EXPECT_EQ(device.end_capture(queue, new_graph), status::capture_invalidated);
      EXPECT_EQ(device.end_capture(queue, new_graph), status::illegal_state);
      EXPECT_EQ(new_graph, nullptr);
      EXPECT_EQ(sums(), before);
      EXPECT_EQ(device.record(point, idle), status::success) << "others go on";
      EXPECT_EQ(device.synchronize(point), status::success);
    }
  }
}

// ---- addresses and the memory behind them ----

TEST_F(fake_addresses, physical_memory_counts_until_it_is_released_and_unmapped) {
  const byte_range range = reserved(2 * unit);
  const byte_range first{range.begin, unit}, second{range.begin + unit, unit};
  const gpu::physical_handle released_first = created(unit), unmapped_first = created(unit);
  EXPECT_EQ(device.map(first, released_first), status::success);
  EXPECT_EQ(device.map(second, unmapped_first), status::success);

  EXPECT_EQ(device.release(released_first), status::success);
  EXPECT_EQ(device.unmap(second), status::success);
  EXPECT_EQ(free_bytes(), 14 * unit);
  EXPECT_EQ(device.physical_bytes(), 2 * unit);
  EXPECT_EQ(device.mapped_bytes(), unit);
  EXPECT_EQ(device.outstanding, 2 * unit);
  EXPECT_EQ(device.release(released_first), status::invalid_value);  // twice

  EXPECT_EQ(device.unmap(first), status::success);
  EXPECT_EQ(free_bytes(), 15 * unit);
  EXPECT_EQ(device.release(unmapped_first), status::success);
  EXPECT_EQ(free_bytes(), 16 * unit);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, remapped_memory_needs_a_new_access_grant) {
  const byte_range range = reserved(unit);
  const gpu::physical_handle handle = created(unit);
  EXPECT_EQ(device.map(range, handle), status::success);
  EXPECT_EQ(device.allow_access(range, 0), status::success);
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.map(range, handle), status::success);
  EXPECT_FALSE(device.accessible(range.data(), 1));
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_touchable_addresses, host_can_touch_only_mapped_and_accessible_addresses) {
  const byte_range range = reserved(2 * unit);
  const byte_range first{range.begin, unit};
  map(first);
  auto* const bytes = static_cast<unsigned char volatile*>(range.data());
  EXPECT_DEATH(bytes[0] = 1, "") << "without access";
  EXPECT_EQ(device.allow_access(first, 0), status::success);
  EXPECT_NE(bytes[0], 0) << "fresh memory is not zero";
  bytes[unit - 1] = 1;
  EXPECT_DEATH(bytes[unit] = 1, "") << "not mapped";
  EXPECT_EQ(device.unmap(first), status::success);
  EXPECT_DEATH(bytes[0] = 1, "") << "not mapped any more";
  EXPECT_EQ(device.free_reservation(range), status::success);
}

// ---- blocks ----

TEST_F(fake_blocks, all_blocks_except_pinned_blocks_use_the_capacity) {
  std::uintptr_t managed = 0, pinned = 0, more = 0;
  const std::uintptr_t block = allocated(10 * unit);
  EXPECT_EQ(device.allocate_managed(6 * unit, managed), status::success);
  EXPECT_EQ(free_bytes(), 0u);
  EXPECT_EQ(device.allocate(1, more), status::out_of_memory);
  EXPECT_EQ(device.allocate_managed(1, more), status::out_of_memory);
  EXPECT_EQ(device.allocate_pinned(100 * unit, pinned), status::success);
  EXPECT_EQ(device.outstanding, 116 * unit);
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(free_bytes(), 10 * unit);
  EXPECT_EQ(device.allocate(SIZE_MAX, more), status::out_of_memory);
  EXPECT_EQ(device.free(managed), status::success);
  EXPECT_EQ(device.free_pinned(pinned), status::success);
}

TEST_F(fake_blocks, addresses_are_multiples_of_256_and_of_no_higher_power_of_two) {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{256}, std::size_t{4095}, std::size_t{4096}, unit}) {
    const std::uintptr_t block = allocated(bytes);
    EXPECT_EQ(block % 512, 256u) << bytes;
    EXPECT_TRUE(device.accessible(reinterpret_cast<void*>(block), bytes)) << bytes;
    EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), bytes + 1)) << bytes;
    EXPECT_EQ(device.free(block), status::success);
    EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), 1)) << bytes;
  }
}

TEST_F(fake_touchable_blocks, writing_far_beyond_a_block_crashes) {
  const std::uintptr_t block = allocated(unit);
  auto* const bytes = reinterpret_cast<unsigned char volatile*>(block);
  bytes[0] = 1;
  bytes[unit - 1] = 1;
  EXPECT_DEATH(bytes[unit + 512] = 1, "");
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_DEATH(bytes[0] = 1, "");
}

// ---- the driver's pools ----

TEST_F(fake_pool, freed_block_stays_in_the_pool_and_uses_the_capacity) {
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(4 * unit, from, queue);
  EXPECT_TRUE(device.accessible(reinterpret_cast<void*>(block), 4 * unit));
  EXPECT_EQ(device.outstanding, 4 * unit);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), 1));
  EXPECT_EQ(device.outstanding, 0u);
  device.run_all();
  EXPECT_EQ(device.pool_reserved_bytes(from), 4 * unit);
  EXPECT_EQ(free_bytes(), 12 * unit);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  EXPECT_EQ(free_bytes(), 16 * unit);
}

TEST_F(fake_pool, freeing_stream_reuses_a_block_at_once_and_another_stream_after_the_free_has_run) {
  const gpu::stream other{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(unit, from, queue);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(allocated(unit, from, queue), block);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  const std::uintptr_t second = allocated(unit, from, other);
  EXPECT_NE(second, block);
  device.run(queue);
  EXPECT_EQ(allocated(unit, from, other), block);
  EXPECT_EQ(device.free_async(block, other), status::success);
  EXPECT_EQ(device.free_async(second, other), status::success);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  device.run_all();
}

// ---- streams and events ----

TEST_F(fake_stream, host_function_runs_without_the_lock_and_may_not_call_the_driver) {
  struct seen {
    fake_device& device;
    std::size_t calls = 0;
    status result = status::success;
  } found{.device = device};
  const auto read_state = [](void* argument) {
    auto& into = *static_cast<seen*>(argument);
    into.calls = into.device.counts_total();  // takes the lock
    std::uintptr_t block = 0;
    into.result = into.device.allocate(1, block);
  };
  EXPECT_EQ(device.launch_on_host(nullptr, read_state, &found), status::success);
  device.run(nullptr);
  EXPECT_GT(found.calls, 0u);
  EXPECT_EQ(found.result, status::not_permitted);
  EXPECT_EQ(device.free(allocated(1)), status::success);  // the thread may again
}

// ---- captures ----

/// The arguments of calls.
struct call_site {
  gpu::driver& of;
  gpu::stream_handle idle;
  gpu::event_handle point;
  std::uintptr_t block = 0;
  byte_range range{};
  gpu::physical_handle handle = 0;
  gpu::shareable_handle shared{};
  gpu::pool_handle pool = nullptr;
  std::size_t bytes = 0;
};

status create_and_destroy_stream(call_site& at) {
  gpu::stream_handle made = nullptr;
  const status result = at.of.create_stream(made);
  if (result == status::success) EXPECT_EQ(at.of.destroy_stream(made), status::success);
  return result;
}

/// Each call that a capture may refuse by its mode, in the order of the table.
const std::pair<std::string, status (*)(call_site&)> calls_that_captures_may_refuse[] = {
    {"cuMemAlloc", [](call_site& at) { return at.of.allocate(0, at.block); }},
    {"cuMemFree", [](call_site& at) { return at.of.free(1); }},
    {"cuMemAllocManaged", [](call_site& at) { return at.of.allocate_managed(0, at.block); }},
    {"cuMemHostAlloc", [](call_site& at) { return at.of.allocate_pinned(0, at.block); }},
    {"cuMemFreeHost", [](call_site& at) { return at.of.free_pinned(1); }},
    {"cuMemAddressReserve", [](call_site& at) { return at.of.reserve(0, 0, at.range); }},
    {"cuMemAddressFree", [](call_site& at) { return at.of.free_reservation({}); }},
    {"cuMemCreate", [](call_site& at) { return at.of.create(0, 0, at.handle); }},
    {"cuMemRelease", [](call_site& at) { return at.of.release(0); }},
    {"cuMemMap", [](call_site& at) { return at.of.map({}, 0); }},
    {"cuMemUnmap", [](call_site& at) { return at.of.unmap({}); }},
    {"cuMemSetAccess", [](call_site& at) { return at.of.allow_access({}, 0); }},
    {"cuMemExportToShareableHandle",
     [](call_site& at) { return at.of.export_handle(0, gpu::handle_type::file_descriptor, at.shared); }},
    {"cuMemImportFromShareableHandle", [](call_site& at) { return at.of.import_handle({}, at.handle); }},
    {"cuMemPoolCreate", [](call_site& at) { return at.of.create_pool(5, at.pool); }},
    {"cuMemPoolDestroy", [](call_site& at) { return at.of.destroy_pool(nullptr); }},
    {"cuMemPoolSetAttribute", [](call_site& at) { return at.of.set_release_threshold(nullptr, 0); }},
    {"cuMemPoolGetAttribute", [](call_site& at) { return at.of.pool_reserved_bytes(nullptr, at.bytes); }},
    {"cuMemPoolSetAccess", [](call_site& at) { return at.of.set_pool_access(nullptr, 0); }},
    {"cuMemPoolTrimTo", [](call_site& at) { return at.of.trim_pool(nullptr, 0); }},
    {"cuStreamCreate", &create_and_destroy_stream},
    {"cuStreamSynchronize", [](call_site& at) { return at.of.synchronize(at.idle); }},
    {"cuEventQuery", [](call_site& at) { return at.of.query(at.point); }},
    {"cuEventSynchronize", [](call_site& at) { return at.of.synchronize(at.point); }},
    {"cuEventRecord", [](call_site& at) { return at.of.record(at.point, at.idle); }},
    {"cuStreamWaitEvent", [](call_site& at) { return at.of.wait(at.idle, at.point); }},
    {"cuGraphExecUpdate", [](call_site& at) { return at.of.update(nullptr, nullptr); }},
    {"cuGraphExecDestroy", [](call_site& at) { return at.of.destroy_executable(gpu::executable_handle{}); }},
};

/// Makes each call in and beside captures of each mode, and compares the result with a table of refusals.
/// Calls without a row are allowed.
void expect_refusals(std::vector<test::fake_refusal> const& table) {
  fake_device device{{.granularity_bytes = unit, .refusals = table}};
  const gpu::stream queue{device}, idle{device};
  const gpu::event point{device};
  call_site site{device, idle, point};
  for (auto const& [name, call] : calls_that_captures_may_refuse) {
    const auto found = std::ranges::find(table, name, &test::fake_refusal::call);
    const test::fake_refusal rule =
        found != table.end()
            ? *found
            : test::fake_refusal{.call = name, .by_own = false, .by_others = false, .source = "allowed"};
    for (capture_mode mode : {capture_mode::global, capture_mode::thread_local_, capture_mode::relaxed}) {
      for (capture_mode own : {capture_mode::global, capture_mode::thread_local_, capture_mode::relaxed}) {
        for (bool here : {true, false}) {
          const bool is_by_mode = here ? rule.by_own && mode != capture_mode::relaxed
                                       : rule.by_others && mode == capture_mode::global &&
                                             (own != capture_mode::thread_local_ || rule.in_relaxed_too);
          const bool refused = is_by_mode && (own != capture_mode::relaxed || rule.in_relaxed_too);
          gpu::graph_handle graph = nullptr;
          EXPECT_EQ(device.begin_capture(queue, mode), status::success);
          status first{}, second{};
          const auto make = [&] {
            capture_mode exchanged = own;
            EXPECT_EQ(device.exchange_capture_mode(exchanged), status::success);
            first = call(site);
            second = call(site);
            EXPECT_EQ(device.exchange_capture_mode(exchanged), status::success);
          };
          here ? make() : in_another_thread(make);
          SCOPED_TRACE(::testing::Message()
                       << name << static_cast<int>(mode) << static_cast<int>(own) << here);
          EXPECT_EQ(first == status::capture_unsupported, refused);
          EXPECT_EQ(second == status::capture_invalidated, refused);
          EXPECT_EQ(device.end_capture(queue, graph),
                    refused ? status::capture_invalidated : status::success);
          if (graph != nullptr) EXPECT_EQ(device.destroy_graph(graph), status::success);
        }
      }
    }
  }
}

TEST(fake_refusals, name_each_driver_call_and_its_source) {
  std::set<std::string> known, named;
  for (auto const& [name, call] : calls_that_captures_may_refuse) known.insert(name);
  for (test::fake_refusal const& each : test::stricter_refusals()) {
    EXPECT_TRUE(named.insert(each.call).second) << each.call << " has two rows";
    EXPECT_FALSE(each.source.empty()) << each.call;
  }
  EXPECT_EQ(known, named);
}

TEST(fake_refusals, match_an_h100_for_each_mode_and_thread) { expect_refusals(test::observed_refusals()); }
TEST(fake_refusals, match_a_stricter_driver_for_each_mode_and_thread) {
  expect_refusals(test::stricter_refusals());
}

TEST_F(fake_capture, event_of_a_capture_cannot_be_queried_or_awaited_by_the_host) {
  const gpu::stream idle{device};
  gpu::event point{device};
  for (bool ask : {true, false}) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
    EXPECT_EQ(device.record(point, queue), status::success);
    EXPECT_EQ(ask ? device.query(point) : device.synchronize(point), status::captured_event);
    EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  }
  destroy(captured(queue, [&] { EXPECT_EQ(device.record(point, queue), status::success); }));
  EXPECT_EQ(device.query(point), status::captured_event);
  EXPECT_EQ(device.synchronize(point), status::captured_event);
  EXPECT_EQ(device.wait(idle, point), status::captured_event);
  point.record(queue);
  EXPECT_EQ(device.query(point), status::not_ready) << "recorded anew, it is as any";
  queue.synchronize();
}

TEST_F(fake_capture, end_requires_every_fork_to_be_joined_with_all_its_work) {
  int runs = 0;
  const gpu::stream forked{device};
  const gpu::event fork{device}, join{device};
  for (int joined = 0; joined < 3; ++joined) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
    EXPECT_EQ(device.record(fork, queue), status::success);
    EXPECT_EQ(device.wait(forked, fork), status::success);
    if (joined == 1) {
      EXPECT_EQ(device.record(join, forked), status::success);
    }
    EXPECT_EQ(device.launch_on_host(forked, &count_up, &runs), status::success);
    if (joined == 2) {
      EXPECT_EQ(device.record(join, forked), status::success);
    }
    if (joined != 0) {
      EXPECT_EQ(device.wait(queue, join), status::success);
    }
    EXPECT_EQ(device.end_capture(queue, graph), joined == 2 ? status::success : status::capture_unjoined)
        << joined;
    bool capturing = true;
    for (gpu::stream_handle each : {queue.get(), forked.get()}) {
      EXPECT_EQ(device.is_capturing(each, capturing), status::success);
      EXPECT_FALSE(capturing);
    }
    if (graph != nullptr) destroy(graph);
  }
}

TEST_F(fake_capture, only_the_beginning_thread_ends_a_capture_that_is_not_relaxed) {
  for (capture_mode mode : {capture_mode::global, capture_mode::thread_local_, capture_mode::relaxed}) {
    const bool relaxed = mode == capture_mode::relaxed;
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, mode), status::success);
    in_another_thread([&] {
      EXPECT_EQ(device.end_capture(queue, graph), relaxed ? status::success : status::capture_wrong_thread);
    });
    if (relaxed) {
      destroy(graph);
    } else {
      EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
    }
  }
}

TEST_F(fake_capture, destroying_its_origin_ends_and_destroying_a_fork_invalidates_the_capture) {
  const gpu::event point{device};
  for (const bool is_fork : {true, false}) {
    gpu::stream staying{device};
    gpu::graph_handle graph = nullptr;
    {
      const gpu::stream ending{device};
      gpu::stream_handle const origin = is_fork ? staying.get() : ending.get();
      EXPECT_EQ(device.begin_capture(origin, capture_mode::global), status::success);
      EXPECT_EQ(device.record(point, origin), status::success);
      EXPECT_EQ(device.wait(is_fork ? ending.get() : staying.get(), point), status::success);
    }
    EXPECT_EQ(device.end_capture(staying, graph),
              is_fork ? status::capture_invalidated : status::illegal_state);
    EXPECT_EQ(device.synchronize(), status::success);
  }
}

// ---- graphs ----

TEST_F(fake_graph, memory_allocated_and_freed_in_a_graph_makes_two_nodes) {
  const gpu::pool_handle from = pool();
  std::uintptr_t inside = 0;
  const gpu::graph_handle graph = captured(queue, [&] {
    inside = allocated(unit, from, queue);
    EXPECT_EQ(device.free_async(inside, queue), status::success);
    EXPECT_EQ(device.pool_reserved_bytes(from), 0u);
  });
  EXPECT_EQ(nodes(graph), 2u);
  EXPECT_EQ(free_bytes(), 15 * unit);
  EXPECT_EQ(device.free(inside), status::invalid_value);
  EXPECT_EQ(device.free_async(inside, queue), status::invalid_value);

  gpu::executable_handle executable = instantiated(graph), second = nullptr;
  EXPECT_EQ(device.instantiate(graph, second), status::invalid_value)
      << "the graph allocates, so one executable at a time";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device.launch(executable, queue), status::success);
  queue.synchronize();
  destroy(executable);
  destroy(instantiated(graph));
  destroy(graph);
  EXPECT_EQ(free_bytes(), 16 * unit);
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

TEST_F(fake_graph, launch_frees_memory_left_by_the_last_launch) {
  const gpu::pool_handle from = pool();
  std::uintptr_t left = 0;
  const gpu::graph_handle graph = captured(queue, [&] { left = allocated(unit, from, queue); });
  const gpu::executable_handle executable = instantiated(graph);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  EXPECT_EQ(device.launch(executable, queue), status::invalid_value);
  EXPECT_EQ(device.free_async(left, queue), status::success);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  EXPECT_EQ(device.free(left), status::success);
  EXPECT_EQ(device.free(left), status::invalid_value);
  queue.synchronize();
  destroy(executable);
  destroy(graph);
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

// ---- counts and failures ----

TEST_F(fake_calls, records_calls_of_the_capturing_thread) {
  int runs = 0;
  destroy(captured(queue, [&] {
    bool capturing = false;
    EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
    EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
    in_another_thread([&] { (void)free_bytes(); });
  }));
  (void)free_bytes();
  EXPECT_EQ(device.calls_during_capture(), (std::vector<std::string>{"cuLaunchHostFunc"}));
}

TEST_F(fake_calls, nth_fallible_call_fails_without_effect) {
  std::uintptr_t block = 0;
  byte_range range;
  const std::size_t begun = device.calls;
  device.fail_from = begun + 1;
  device.fail_count = 2;
  EXPECT_EQ(device.free(allocated(1)), status::success);  // a free is not counted
  EXPECT_EQ(device.allocate(1, block), status::out_of_memory);
  device.failure = status::unknown;
  EXPECT_EQ(device.reserve(unit, 0, range), status::unknown);
  EXPECT_EQ(block, 0u);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.reserve(unit, 0, range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.calls, begun + 4);
}

// ---- at its end ----

/// A device, and calls that leave something on it.
struct leaving_device : fake_device {
  leaving_device() : fake_device{{.granularity_bytes = unit}} {}
  void map_unit() {
    (void)reserve(unit, 0, range);
    (void)create(0, unit, handle);
    (void)map(range, handle);
    (void)release(handle);
  }
  void lose_block_of_pool() {
    (void)create_pool(0, pool);
    (void)allocate_async(1, pool, nullptr, block);
    (void)destroy_pool(pool);
  }
  void capture() {
    (void)create_stream(stream);
    (void)begin_capture(stream, capture_mode::global);
  }
  void make_graph() {
    capture();
    (void)end_capture(stream, graph);
  }
  void make_executable() {
    make_graph();
    (void)instantiate(graph, executable);
  }
  void launch_block_of_graph() {
    (void)create_pool(0, pool);
    capture();
    (void)allocate_async(1, pool, stream, block);
    (void)end_capture(stream, graph);
    (void)instantiate(graph, executable);
    (void)launch(executable, stream);
  }

  byte_range range;
  gpu::physical_handle handle = 0;
  std::uintptr_t block = 0;
  gpu::stream_handle stream = nullptr;
  gpu::event_handle event = nullptr;
  gpu::pool_handle pool = nullptr;
  gpu::graph_handle graph = nullptr;
  gpu::executable_handle executable = nullptr;
};

TEST(fake_device_end, names_every_leaked_object) {
  using made = leaving_device;
  const auto left_by = [](std::function<void(made&)> const& body) {
    return failures_of([&] {
      made device;
      body(device);
    });
  };
  const std::pair<char const*, std::function<void(made&)>> cases[] = {
      {"1 reservations of addresses", [](made& of) { (void)of.reserve(unit, 0, of.range); }},
      {"handles of physical memory", [](made& of) { (void)of.create(0, unit, of.handle); }},
      {"1 mappings", [](made& of) { of.map_unit(); }},
      {"a device block of 100 bytes", [](made& of) { (void)of.allocate(100, of.block); }},
      {"a managed block of 100 bytes", [](made& of) { (void)of.allocate_managed(100, of.block); }},
      {"a pinned block of 100 bytes", [](made& of) { (void)of.allocate_pinned(100, of.block); }},
      {"pools were not destroyed", [](made& of) { (void)of.create_pool(0, of.pool); }},
      {"blocks of pools were not freed", [](made& of) { of.lose_block_of_pool(); }},
      {"1 streams", [](made& of) { (void)of.create_stream(of.stream); }},
      {"1 events", [](made& of) { (void)of.create_event(of.event); }},
      {"functions of the host were queued",
       [](made& of) { (void)of.launch_on_host(nullptr, &count_up, nullptr); }},
      {"1 captures were not ended", [](made& of) { of.capture(); }},
      {"1 graphs", [](made& of) { of.make_graph(); }},
      {"1 executable graphs", [](made& of) { of.make_executable(); }},
      {"1 blocks that a graph allocated", [](made& of) { of.launch_block_of_graph(); }},
  };
  for (auto const& [sentence, body] : cases)
    EXPECT_NE(left_by(body).find(sentence), std::string::npos) << sentence;
  EXPECT_EQ(left_by([](made& of) {
              (void)of.allocate(1, of.block);
              (void)of.free_async(of.block, nullptr);  // of itself when the work has run
            }),
            "");
}

}  // namespace
}  // namespace tidemark::test
