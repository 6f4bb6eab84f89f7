// SPDX-License-Identifier: Apache-2.0
// Strategy: the device part is tested on a fake device, so the fake itself must refuse what CUDA refuses:
// each documented rule once, broken and kept, and that a refused call changes nothing. What a capture refuses
// goes through all modes and both sides of a thread.
#include "fake_device.hpp"

#include <gtest/gtest-spi.h>
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

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>

namespace tidemark {
namespace {

using gpu::capture_mode;
using gpu::status;
using test::fake_device;
using test::fake_device_options;

constexpr std::size_t grain = 64 * KiB;

/// What a fake device finds wrong meanwhile.
std::string failures_of(std::function<void()> const& body) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter{
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results};
    body();
  }
  std::string all;
  for (int i = 0; i < results.size(); ++i) all += std::string{results.GetTestPartResult(i).message()} + "\n";
  return all;
}

void in_another_thread(std::function<void()> const& body) { std::thread{body}.join(); }

void count_up(void* number) { ++*static_cast<int*>(number); }

/// A function of the host that notes that it ran.
struct step {
  std::vector<int>* order;
  int number;
  static void run(void* argument) {
    auto const& self = *static_cast<step*>(argument);
    self.order->push_back(self.number);
  }
};

/// A small device, and the calls that must succeed.
struct on_fake_device : ::testing::Test {
  explicit on_fake_device(fake_device_options const& options = {.capacity_bytes = 16 * grain,
                                                                .granularity_bytes = grain})
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
  void launch(gpu::stream_handle on, step& what) {
    EXPECT_EQ(device.launch_on_host(on, &step::run, &what), status::success);
  }
  gpu::graph_handle captured(gpu::stream_handle on, std::function<void()> const& body) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(on, capture_mode::global), status::success);
    body();
    EXPECT_EQ(device.end_capture(on, graph), status::success);
    return graph;
  }
  gpu::executable_handle instantiated(gpu::graph_handle graph) {
    gpu::executable_handle executable = nullptr;
    EXPECT_EQ(device.instantiate(graph, executable), status::success);
    return executable;
  }
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
};

/// One whose memory is there on the host.
struct on_touchable_device : on_fake_device {
  on_touchable_device()
      : on_fake_device{{.capacity_bytes = 16 * grain, .granularity_bytes = grain, .touchable = true}} {}
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

// ---- addresses and the memory behind them ----

TEST_F(fake_addresses, a_reservation_is_whole_granules_with_an_alignment_that_is_a_power_of_two) {
  byte_range range{.begin = 1, .size = 2};
  EXPECT_EQ(device.reserve(0, 0, range), status::invalid_value);
  EXPECT_EQ(device.reserve(grain + 4096, 0, range), status::invalid_value);
  EXPECT_EQ(device.reserve(grain, 3 * grain, range), status::invalid_value);
  EXPECT_EQ(range, (byte_range{.begin = 1, .size = 2}));

  EXPECT_EQ(device.reserve(grain, 8 * grain, range), status::success);
  EXPECT_EQ(range.begin % (8 * grain), 0u);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, reserving_takes_no_capacity) {
  const byte_range range = reserved(1000 * grain);
  EXPECT_EQ(device.reserved_bytes(), 1000 * grain);
  EXPECT_EQ(free_bytes(), 16 * grain);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.reserved_bytes(), 0u);
}

TEST_F(fake_addresses, only_a_whole_reservation_with_nothing_mapped_is_freed) {
  const byte_range range = reserved(4 * grain);
  EXPECT_EQ(device.free_reservation({range.begin, grain}), status::invalid_value);
  EXPECT_EQ(device.free_reservation({range.begin + grain, 3 * grain}), status::invalid_value);
  const byte_range last{range.begin + 3 * grain, grain};
  map(last);
  EXPECT_EQ(device.free_reservation(range), status::invalid_value);
  EXPECT_EQ(device.unmap(last), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::invalid_value);
}

TEST_F(fake_addresses, physical_memory_is_whole_granules_of_a_device_that_exists) {
  gpu::physical_handle handle = 77;
  EXPECT_EQ(device.create(0, 0, handle), status::invalid_value);
  EXPECT_EQ(device.create(0, grain / 2, handle), status::invalid_value);
  EXPECT_EQ(device.create(1, grain, handle), status::invalid_device);
  EXPECT_EQ(device.create(0, 17 * grain, handle), status::out_of_memory);
  EXPECT_EQ(handle, 77u);
  EXPECT_EQ(device.release(77), status::invalid_value);
}

TEST_F(fake_addresses, physical_memory_counts_until_it_is_released_and_unmapped) {
  const byte_range range = reserved(2 * grain);
  const byte_range first{range.begin, grain}, second{range.begin + grain, grain};
  const gpu::physical_handle released_first = created(grain), unmapped_first = created(grain);
  EXPECT_EQ(device.map(first, released_first), status::success);
  EXPECT_EQ(device.map(second, unmapped_first), status::success);

  EXPECT_EQ(device.release(released_first), status::success);
  EXPECT_EQ(device.unmap(second), status::success);
  EXPECT_EQ(free_bytes(), 14 * grain);
  EXPECT_EQ(device.physical_bytes(), 2 * grain);
  EXPECT_EQ(device.mapped_bytes(), grain);
  EXPECT_EQ(device.outstanding, 2 * grain);
  EXPECT_EQ(device.release(released_first), status::invalid_value);  // twice

  EXPECT_EQ(device.unmap(first), status::success);
  EXPECT_EQ(free_bytes(), 15 * grain);
  EXPECT_EQ(device.release(unmapped_first), status::success);
  EXPECT_EQ(free_bytes(), 16 * grain);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, all_of_a_handle_is_mapped_at_a_granule_inside_one_reservation) {
  const byte_range range = reserved(4 * grain);
  const gpu::physical_handle handle = created(2 * grain);
  EXPECT_EQ(device.map({range.begin, grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin, 4 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin + 4096, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin + 3 * grain, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin - 2 * grain, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin, 2 * grain}, handle + 1), status::invalid_value);
  EXPECT_EQ(device.mapped_bytes(), 0u);
  EXPECT_EQ(device.map({range.begin + 2 * grain, 2 * grain}, handle), status::success);
  EXPECT_EQ(device.unmap({range.begin + 2 * grain, 2 * grain}), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.map({range.begin, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, a_released_handle_is_mapped_no_more_though_its_memory_is_there) {
  const byte_range range = reserved(2 * grain);
  const byte_range first{range.begin, grain}, second{range.begin + grain, grain};
  const gpu::physical_handle handle = created(grain);
  EXPECT_EQ(device.map(first, handle), status::success);
  EXPECT_EQ(device.map(second, handle), status::success) << "twice, as long as it is there";
  EXPECT_EQ(device.unmap(second), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.map(second, handle), status::invalid_value);
  EXPECT_EQ(device.unmap(first), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, nothing_is_mapped_over_a_mapping) {
  const byte_range range = reserved(4 * grain);
  const byte_range middle{range.begin + grain, 2 * grain};
  map(middle);
  const gpu::physical_handle handle = created(2 * grain);
  EXPECT_EQ(device.map(middle, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.map({range.begin + 2 * grain, 2 * grain}, handle), status::invalid_value);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.unmap(middle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, whole_mappings_without_a_gap_are_unmapped) {
  const byte_range range = reserved(9 * grain);
  const auto part = [&](std::size_t first, std::size_t n) {
    return byte_range{range.begin + first * grain, n * grain};
  };
  for (byte_range each : {part(0, 2), part(2, 1), part(3, 2), part(6, 2)}) map(each);
  for (byte_range wrong : {part(0, 1), part(1, 1), part(1, 2),  // parts of a mapping
                           part(0, 4), part(1, 4),              // and whole ones besides
                           part(0, 6), part(3, 5), part(5, 3),  // over a gap, or with one at an end
                           part(5, 1), part(0, 0)})             // nothing
    EXPECT_EQ(device.unmap(wrong), status::invalid_value);
  EXPECT_EQ(device.mapped_bytes(), 7 * grain) << "a refused call unmaps none";
  EXPECT_EQ(device.unmap(part(2, 3)), status::success) << "two of three neighbours";
  EXPECT_EQ(device.mapped_bytes(), 4 * grain);
  EXPECT_EQ(device.unmap(part(2, 3)), status::invalid_value);
  EXPECT_EQ(device.unmap(part(0, 2)), status::success) << "one";
  EXPECT_EQ(device.unmap(part(6, 2)), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, access_is_granted_to_whole_mappings_without_a_gap) {
  const byte_range range = reserved(6 * grain);
  const byte_range first{range.begin, 2 * grain}, second{range.begin + 2 * grain, grain},
      third{range.begin + 4 * grain, grain};
  map(first);
  map(second);
  map(third);
  EXPECT_EQ(device.allow_access({range.begin, grain}, 0), status::invalid_value);      // a part of one
  EXPECT_EQ(device.allow_access({range.begin, 4 * grain}, 0), status::invalid_value);  // ends in a gap
  EXPECT_EQ(device.allow_access({range.begin, 5 * grain}, 0), status::invalid_value);  // over a gap
  EXPECT_EQ(device.allow_access({range.begin + 3 * grain, 2 * grain}, 0), status::invalid_value);
  EXPECT_EQ(device.allow_access({range.begin, 0}, 0), status::invalid_value);
  EXPECT_EQ(device.allow_access(first, 1), status::invalid_device);
  EXPECT_FALSE(device.accessible(range.data(), 1));

  EXPECT_EQ(device.allow_access({range.begin, 3 * grain}, 0), status::success);
  EXPECT_TRUE(device.accessible(range.data(), 3 * grain));
  EXPECT_FALSE(device.accessible(range.data(), 3 * grain + 1));
  EXPECT_FALSE(device.accessible(third.data(), grain));
  for (byte_range each : {first, second, third}) EXPECT_EQ(device.unmap(each), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, memory_mapped_again_needs_access_again) {
  const byte_range range = reserved(grain);
  const gpu::physical_handle handle = created(grain);
  EXPECT_EQ(device.map(range, handle), status::success);
  EXPECT_EQ(device.allow_access(range, 0), status::success);
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.map(range, handle), status::success);
  EXPECT_FALSE(device.accessible(range.data(), 1));
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, each_call_has_a_modelled_cost) {
  const double before_us = device.modelled_us();
  const byte_range range = reserved(grain);
  EXPECT_EQ(device.modelled_us() - before_us, 1) << "one that is not in the table";
  map(range);
  EXPECT_EQ(device.allow_access(range, 0), status::success);
  EXPECT_NEAR(device.modelled_us() - before_us, 80, 25) << "a handle that is mapped and accessible";
  const double mapped_us = device.modelled_us();
  EXPECT_EQ(device.unmap({range.begin, 0}), status::invalid_value);
  EXPECT_GT(device.modelled_us(), mapped_us) << "one that fails, too";
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_addresses, the_host_cannot_touch_them) {
  const byte_range range = reserved(grain);
  map(range);
  EXPECT_EQ(device.allow_access(range, 0), status::success);
  EXPECT_DEATH(*static_cast<char volatile*>(range.data()) = 1, "");
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

TEST_F(fake_touchable_addresses, the_host_touches_what_is_mapped_and_accessible_and_nothing_else) {
  const byte_range range = reserved(2 * grain);
  const byte_range first{range.begin, grain};
  map(first);
  auto* const bytes = static_cast<unsigned char volatile*>(range.data());
  EXPECT_DEATH(bytes[0] = 1, "") << "without access";
  EXPECT_EQ(device.allow_access(first, 0), status::success);
  EXPECT_NE(bytes[0], 0) << "fresh memory is not zero";
  bytes[grain - 1] = 1;
  EXPECT_DEATH(bytes[grain] = 1, "") << "not mapped";
  EXPECT_EQ(device.unmap(first), status::success);
  EXPECT_DEATH(bytes[0] = 1, "") << "not mapped any more";
  EXPECT_EQ(device.free_reservation(range), status::success);
}

// ---- blocks ----

TEST_F(fake_blocks, nothing_is_no_block) {
  std::uintptr_t block = 5;
  EXPECT_EQ(device.allocate(0, block), status::invalid_value);
  EXPECT_EQ(device.allocate_managed(0, block), status::invalid_value);
  EXPECT_EQ(device.allocate_pinned(0, block), status::invalid_value);
  EXPECT_EQ(block, 5u);
  EXPECT_EQ(device.free(0), status::success);
  EXPECT_EQ(device.free_pinned(0), status::success);
}

TEST_F(fake_blocks, each_is_freed_once_and_where_it_begins) {
  const std::uintptr_t block = allocated(1000);
  EXPECT_EQ(device.outstanding, 1000u);
  EXPECT_EQ(device.free(block + 1), status::invalid_value);
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(device.free(block), status::invalid_value);
  EXPECT_EQ(device.outstanding, 0u);
}

TEST_F(fake_blocks, all_but_pinned_ones_take_from_the_capacity) {
  std::uintptr_t managed = 0, pinned = 0, more = 0;
  const std::uintptr_t block = allocated(10 * grain);
  EXPECT_EQ(device.allocate_managed(6 * grain, managed), status::success);
  EXPECT_EQ(free_bytes(), 0u);
  EXPECT_EQ(device.allocate(1, more), status::out_of_memory);
  EXPECT_EQ(device.allocate_managed(1, more), status::out_of_memory);
  EXPECT_EQ(device.allocate_pinned(100 * grain, pinned), status::success);
  EXPECT_EQ(device.outstanding, 116 * grain);
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(free_bytes(), 10 * grain);
  EXPECT_EQ(device.allocate(SIZE_MAX, more), status::out_of_memory);
  EXPECT_EQ(device.free(managed), status::success);
  EXPECT_EQ(device.free_pinned(pinned), status::success);
}

TEST_F(fake_blocks, pinned_ones_have_a_free_of_their_own) {
  std::uintptr_t pinned = 0;
  EXPECT_EQ(device.allocate_pinned(100, pinned), status::success);
  const std::uintptr_t block = allocated(100);
  EXPECT_EQ(device.free(pinned), status::invalid_value);
  EXPECT_EQ(device.free_pinned(block), status::invalid_value);
  EXPECT_EQ(device.free_pinned(pinned), status::success);
  EXPECT_EQ(device.free_pinned(pinned), status::invalid_value);
  EXPECT_EQ(device.free(block), status::success);
}

TEST_F(fake_blocks, they_lie_at_multiples_of_256_and_of_no_more) {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{256}, std::size_t{4095}, std::size_t{4096}, grain}) {
    const std::uintptr_t block = allocated(bytes);
    EXPECT_EQ(block % 512, 256u) << bytes;
    EXPECT_TRUE(device.accessible(reinterpret_cast<void*>(block), bytes)) << bytes;
    EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), bytes + 1)) << bytes;
    EXPECT_EQ(device.free(block), status::success);
    EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), 1)) << bytes;
  }
}

TEST_F(fake_blocks, the_host_touches_pinned_and_managed_ones_alone) {
  std::uintptr_t managed = 0, pinned = 0;
  EXPECT_EQ(device.allocate_managed(grain, managed), status::success);
  EXPECT_EQ(device.allocate_pinned(grain, pinned), status::success);
  for (std::uintptr_t touchable : {managed, pinned}) {
    auto* const bytes = reinterpret_cast<unsigned char*>(touchable);
    EXPECT_NE(bytes[0], 0) << "fresh memory is not zero";
    bytes[0] = bytes[grain - 1] = 1;
  }
  const std::uintptr_t block = allocated(grain);
  EXPECT_DEATH(*reinterpret_cast<char volatile*>(block) = 1, "");
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(device.free(managed), status::success);
  EXPECT_EQ(device.free_pinned(pinned), status::success);
}

TEST_F(fake_touchable_blocks, writing_far_beyond_one_crashes) {
  const std::uintptr_t block = allocated(grain);
  auto* const bytes = reinterpret_cast<unsigned char volatile*>(block);
  bytes[0] = 1;
  bytes[grain - 1] = 1;
  EXPECT_DEATH(bytes[grain + 512] = 1, "");
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_DEATH(bytes[0] = 1, "");
}

TEST_F(fake_blocks, freeing_one_does_not_wait_for_the_device) {
  int runs = 0;
  const gpu::stream queue{device};
  const std::uintptr_t block = allocated(100);
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(runs, 0);
  queue.synchronize();
}

// ---- the driver's pools ----

TEST_F(fake_pool, a_freed_block_stays_in_it_and_takes_from_the_capacity) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(4 * grain, from, queue);
  EXPECT_TRUE(device.accessible(reinterpret_cast<void*>(block), 4 * grain));
  EXPECT_EQ(device.outstanding, 4 * grain);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_FALSE(device.accessible(reinterpret_cast<void*>(block), 1));
  EXPECT_EQ(device.outstanding, 0u);
  device.run_all();
  EXPECT_EQ(device.pool_reserved_bytes(from), 4 * grain);
  EXPECT_EQ(free_bytes(), 12 * grain);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  EXPECT_EQ(free_bytes(), 16 * grain);
}

TEST_F(fake_pool, the_stream_that_freed_a_block_has_it_again_at_once) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(4 * grain, from, queue);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(allocated(3 * grain, from, queue), block);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  queue.synchronize();
}

TEST_F(fake_pool, another_stream_has_it_when_the_free_has_run) {
  const gpu::stream queue{device}, other{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(grain, from, queue);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  const std::uintptr_t second = allocated(grain, from, other);
  EXPECT_NE(second, block);
  device.run(queue);
  EXPECT_EQ(allocated(grain, from, other), block);
  EXPECT_EQ(device.free_async(block, other), status::success);
  EXPECT_EQ(device.free_async(second, other), status::success);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  device.run_all();
}

TEST_F(fake_pool, a_synchronisation_gives_back_what_it_holds_beyond_the_threshold) {
  const gpu::stream queue{device};
  const gpu::event end{device};
  const gpu::pool_handle from = pool();
  EXPECT_EQ(device.release_threshold(from), 0u);
  EXPECT_EQ(device.set_release_threshold(from, 3 * grain), status::success);
  EXPECT_EQ(device.release_threshold(from), 3 * grain);
  const std::function<void()> ways[] = {[&] { EXPECT_EQ(device.synchronize(queue), status::success); },
                                        [&] { EXPECT_EQ(device.synchronize(end), status::success); },
                                        [&] { EXPECT_EQ(device.synchronize(), status::success); }};
  for (auto const& synchronize : ways) {
    std::vector<std::uintptr_t> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(allocated(grain, from, queue));
    for (std::uintptr_t block : blocks) EXPECT_EQ(device.free_async(block, queue), status::success);
    device.run_all();
    EXPECT_EQ(device.pool_reserved_bytes(from), 5 * grain);
    synchronize();
    EXPECT_EQ(device.pool_reserved_bytes(from), 3 * grain);
  }
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

TEST_F(fake_pool, trimming_gives_back_what_was_freed_and_has_run) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t live = allocated(grain, from, queue), freed = allocated(grain, from, queue),
                       waiting = allocated(grain, from, queue);
  EXPECT_EQ(device.free_async(freed, queue), status::success);
  device.run_all();
  EXPECT_EQ(device.free_async(waiting, queue), status::success);
  EXPECT_EQ(device.trim_pool(from, 3 * grain), status::success);
  EXPECT_EQ(device.pool_reserved_bytes(from), 3 * grain);
  EXPECT_EQ(device.trim_pool(from, 0), status::success);
  EXPECT_EQ(device.pool_reserved_bytes(from), 2 * grain);
  device.run_all();
  EXPECT_EQ(device.trim_pool(from, 0), status::success);
  EXPECT_EQ(device.pool_reserved_bytes(from), grain);
  EXPECT_EQ(device.free_async(live, queue), status::success);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  queue.synchronize();
}

TEST_F(fake_pool, what_is_cached_is_not_given_back_to_make_room) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  EXPECT_EQ(device.free_async(allocated(10 * grain, from, queue), queue), status::success);
  std::uintptr_t more = 0;
  EXPECT_EQ(device.allocate_async(12 * grain, from, queue, more), status::out_of_memory);
  EXPECT_EQ(device.allocate(7 * grain, more), status::out_of_memory);
  device.run_all();
  EXPECT_EQ(device.trim_pool(from, 0), status::success);
  const std::uintptr_t block = allocated(12 * grain, from, queue);
  queue.synchronize();
  EXPECT_EQ(device.free(block), status::success);  // cuMemFree takes it too
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

TEST_F(fake_pool, a_destroyed_one_lives_until_its_blocks_are_freed) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(grain, from, queue);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  std::uintptr_t more = 0;
  EXPECT_EQ(device.allocate_async(grain, from, queue, more), status::invalid_value);
  EXPECT_EQ(device.destroy_pool(from), status::invalid_value);
  EXPECT_EQ(device.trim_pool(from, 0), status::invalid_value);
  EXPECT_EQ(device.set_release_threshold(from, 0), status::invalid_value);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(free_bytes(), 15 * grain);
  device.run_all();
  EXPECT_EQ(free_bytes(), 16 * grain);
}

TEST_F(fake_pool, each_block_is_freed_once) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  const std::uintptr_t block = allocated(grain, from, queue);
  std::uintptr_t none = 0;
  EXPECT_EQ(device.allocate_async(0, from, queue, none), status::invalid_value);
  EXPECT_EQ(device.free_async(0, queue), status::invalid_value);
  EXPECT_EQ(device.free_async(block + 256, queue), status::invalid_value);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(device.free_async(block, queue), status::invalid_value);
  EXPECT_EQ(device.free(block), status::invalid_value);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  device.run_all();
}

TEST_F(fake_pool, an_ordinary_block_can_be_freed_in_stream_order) {
  const gpu::stream queue{device};
  const std::uintptr_t block = allocated(grain);
  EXPECT_EQ(device.free_async(block, queue), status::success);
  EXPECT_EQ(device.free_async(block, queue), status::invalid_value);
  EXPECT_EQ(device.free(block), status::invalid_value);
  EXPECT_EQ(free_bytes(), 15 * grain);
  device.run_all();
  EXPECT_EQ(free_bytes(), 16 * grain);
}

// ---- streams and events ----

TEST_F(fake_stream, work_runs_only_when_the_test_runs_it_and_in_order) {
  std::vector<int> order;
  step first{&order, 1}, second{&order, 2}, elsewhere{&order, 3};
  const gpu::stream queue{device}, other{device};
  launch(queue, first);
  launch(other, elsewhere);
  launch(queue, second);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(device.pending(queue), 2u);
  device.run(queue);
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_EQ(device.pending(queue), 0u);
  device.run_all();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST_F(fake_stream, what_waits_for_an_event_runs_behind_it) {
  std::vector<int> order;
  step before{&order, 1}, after{&order, 2}, waiting{&order, 3};
  const gpu::stream queue{device}, other{device};
  launch(queue, before);
  const gpu::event between{queue, device};
  launch(queue, after);
  other.wait(between);
  launch(other, waiting);
  device.run(other);
  EXPECT_EQ(order, (std::vector{1, 3}));
  device.run_all();
  EXPECT_EQ(order, (std::vector{1, 3, 2}));
}

TEST_F(fake_stream, a_wait_is_for_the_record_before_it) {
  std::vector<int> order;
  step first{&order, 1}, second{&order, 2}, waiting{&order, 3};
  const gpu::stream queue{device}, other{device};
  launch(queue, first);
  gpu::event point{queue, device};
  other.wait(point);
  launch(other, waiting);
  launch(queue, second);
  point.record(queue);
  device.run(other);
  EXPECT_EQ(order, (std::vector{1, 3}));
  EXPECT_EQ(device.query(point), status::not_ready);
  device.run_all();
}

TEST_F(fake_stream, an_event_is_ready_when_the_work_before_it_has_run) {
  int runs = 0;
  const gpu::stream queue{device};
  gpu::event point{device};
  EXPECT_EQ(device.query(point), status::success) << "recorded nowhere";
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  point.record(queue);
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  EXPECT_EQ(device.query(point), status::not_ready);
  EXPECT_EQ(runs, 0) << "asking runs nothing";
  EXPECT_EQ(device.synchronize(point), status::success);
  EXPECT_EQ(runs, 1) << "and waiting no more than there is before";
  EXPECT_EQ(device.query(point), status::success);
  device.run_all();
}

TEST_F(fake_stream, the_default_stream_is_one_more) {
  int runs = 0;
  const gpu::stream queue{device};
  EXPECT_EQ(device.launch_on_host(nullptr, &count_up, &runs), status::success);
  queue.synchronize();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(device.synchronize(gpu::stream_handle{}), status::success);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(device.destroy_stream(nullptr), status::invalid_handle);
}

TEST_F(fake_stream, synchronising_the_device_runs_all_its_streams) {
  int runs = 0;
  const gpu::stream queue{device};
  EXPECT_EQ(device.launch_on_host(nullptr, &count_up, &runs), status::success);
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(runs, 2);
}

TEST_F(fake_stream, its_work_and_its_events_outlive_it) {
  int runs = 0;
  gpu::event point{device};
  {
    const gpu::stream queue{device};
    EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
    point.record(queue);
  }
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(device.query(point), status::not_ready);
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(device.query(point), status::success);
}

TEST_F(fake_stream, handles_that_are_unknown_are_refused) {
  gpu::stream_handle gone = nullptr;
  gpu::event_handle over = nullptr;
  EXPECT_EQ(device.create_stream(gone), status::success);
  EXPECT_EQ(device.create_event(over), status::success);
  EXPECT_EQ(device.destroy_stream(gone), status::success);
  EXPECT_EQ(device.destroy_event(over), status::success);

  int runs = 0;
  bool capturing = false;
  gpu::graph_handle graph = nullptr;
  std::uintptr_t block = 0;
  const gpu::event point{device};
  EXPECT_EQ(device.destroy_stream(gone), status::invalid_handle);
  EXPECT_EQ(device.synchronize(gone), status::invalid_handle);
  EXPECT_EQ(device.launch_on_host(gone, &count_up, &runs), status::invalid_handle);
  EXPECT_EQ(device.record(point, gone), status::invalid_handle);
  EXPECT_EQ(device.wait(gone, point), status::invalid_handle);
  EXPECT_EQ(device.begin_capture(gone, capture_mode::relaxed), status::invalid_handle);
  EXPECT_EQ(device.end_capture(gone, graph), status::invalid_handle);
  EXPECT_EQ(device.is_capturing(gone, capturing), status::invalid_handle);
  EXPECT_EQ(device.launch(nullptr, gone), status::invalid_handle);
  EXPECT_EQ(device.allocate_async(1, nullptr, gone, block), status::invalid_handle);
  EXPECT_EQ(device.free_async(block, gone), status::invalid_handle);
  for (gpu::event_handle none : {over, gpu::event_handle{}}) {
    EXPECT_EQ(device.destroy_event(none), status::invalid_handle);
    EXPECT_EQ(device.query(none), status::invalid_handle);
    EXPECT_EQ(device.synchronize(none), status::invalid_handle);
    EXPECT_EQ(device.record(none, nullptr), status::invalid_handle);
    EXPECT_EQ(device.wait(nullptr, none), status::invalid_handle);
  }
  EXPECT_EQ(device.launch_on_host(nullptr, nullptr, nullptr), status::invalid_value);
}

TEST_F(fake_stream, a_function_of_the_host_runs_without_the_lock_and_must_not_call_the_driver) {
  struct seen {
    fake_device& device;
    std::size_t calls = 0;
    status result = status::success;
  } found{.device = device};
  const auto look = [](void* argument) {
    auto& into = *static_cast<seen*>(argument);
    into.calls = into.device.counts_total();  // takes the lock
    std::uintptr_t block = 0;
    into.result = into.device.allocate(1, block);
  };
  EXPECT_EQ(device.launch_on_host(nullptr, look, &found), status::success);
  device.run(nullptr);
  EXPECT_GT(found.calls, 0u);
  EXPECT_EQ(found.result, status::not_permitted);
  EXPECT_EQ(device.free(allocated(1)), status::success);  // the thread may again
}

TEST_F(fake_stream, several_threads_synchronise_it_and_its_order_holds) {
  constexpr int count = 2000;
  std::vector<int> order;  // without a lock: the stream is the order
  std::vector<step> steps;
  steps.reserve(count);
  const gpu::stream queue{device}, other{device};
  for (int i = 0; i < count; ++i) {
    steps.push_back({&order, i});
    const gpu::stream_handle on = i % 2 == 0 ? queue.get() : other.get();
    launch(on, steps.back());
    const gpu::event point{on, device};
    EXPECT_EQ(device.wait(i % 2 == 0 ? other.get() : queue.get(), point), status::success);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, on = i % 2 == 0 ? queue.get() : other.get()] {
      EXPECT_EQ(device.synchronize(on), status::success);
    });
  }
  for (std::thread& each : threads) each.join();
  ASSERT_EQ(order.size(), std::size_t{count});
  for (int i = 0; i < count; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// ---- captures ----

TEST_F(fake_capture, work_becomes_nodes_and_does_not_run) {
  int runs = 0;
  const gpu::stream queue{device};
  bool capturing = true;
  EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
  EXPECT_FALSE(capturing);
  const gpu::graph_handle graph = captured(queue, [&] {
    EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
    EXPECT_TRUE(capturing);
    EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
    EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  });
  EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
  EXPECT_FALSE(capturing);
  queue.synchronize();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(nodes(graph), 2u);
  destroy(graph);
}

TEST_F(fake_capture, an_empty_one_is_a_graph_without_nodes) {
  const gpu::stream queue{device};
  const gpu::graph_handle graph = captured(queue, [] {});
  EXPECT_EQ(nodes(graph), 0u);
  const gpu::executable_handle executable = instantiated(graph);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  queue.synchronize();
  destroy(executable);
  destroy(graph);
}

TEST_F(fake_capture, work_from_before_it_runs_all_the_same) {
  int runs = 0;
  const gpu::stream queue{device};
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  destroy(captured(queue, [] {}));
  EXPECT_EQ(runs, 0);
  queue.synchronize();
  EXPECT_EQ(runs, 1);
}

TEST_F(fake_capture, the_default_stream_cannot_be_captured) {
  EXPECT_EQ(device.begin_capture(nullptr, capture_mode::relaxed), status::capture_unsupported);
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(nullptr, graph), status::illegal_state);
}

TEST_F(fake_capture, it_begins_once_and_ends_once) {
  const gpu::stream queue{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(queue, graph), status::illegal_state);
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::illegal_state);
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  EXPECT_EQ(device.end_capture(queue, graph), status::illegal_state);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(fake_capture, one_that_is_invalid_refuses_everything_until_it_ends_without_a_graph) {
  int runs = 0;
  const gpu::stream queue{device}, idle{device};
  const gpu::event before{device};
  gpu::event inside{device};
  const gpu::pool_handle from = pool();
  gpu::graph_handle graph = nullptr;
  std::uintptr_t block = 0;
  const gpu::graph_handle other = captured(idle, [] {});
  const gpu::executable_handle executable = instantiated(other);

  EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
  EXPECT_EQ(device.record(inside, queue), status::success);
  EXPECT_EQ(device.synchronize(queue), status::capture_unsupported);
  EXPECT_EQ(device.synchronize(queue), status::capture_invalidated);
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::capture_invalidated);
  EXPECT_EQ(device.allocate_async(1, from, queue, block), status::capture_invalidated);
  EXPECT_EQ(device.free_async(1, queue), status::capture_invalidated);
  EXPECT_EQ(device.record(before, queue), status::capture_invalidated);
  EXPECT_EQ(device.wait(queue, before), status::capture_invalidated);
  EXPECT_EQ(device.wait(idle, inside), status::invalid_value);
  EXPECT_EQ(device.query(inside), status::capture_invalidated);
  EXPECT_EQ(device.synchronize(inside), status::capture_invalidated);
  EXPECT_EQ(device.launch(executable, queue), status::capture_invalidated);
  EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::capture_invalidated);
  EXPECT_EQ(device.synchronize(), status::capture_invalidated);
  bool capturing = false;
  EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
  EXPECT_TRUE(capturing);
  EXPECT_EQ(device.query(before), status::success) << "others go on";
  EXPECT_EQ(device.launch_on_host(idle, &count_up, &runs), status::success);

  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(runs, 2);
  destroy(executable);
  destroy(other);
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

/// Each call that a capture may refuse by its mode, in the order of the table.
std::vector<
    std::pair<std::string, std::function<status(gpu::driver&, gpu::stream_handle, gpu::event_handle)>>>
refused_calls() {
  using stream = gpu::stream_handle;
  using event = gpu::event_handle;
  return {
      {"cuMemAlloc",
       [](gpu::driver& of, stream, event) {
         std::uintptr_t block = 0;
         return of.allocate(0, block);
       }},
      {"cuMemFree", [](gpu::driver& of, stream, event) { return of.free(1); }},
      {"cuMemAllocManaged",
       [](gpu::driver& of, stream, event) {
         std::uintptr_t block = 0;
         return of.allocate_managed(0, block);
       }},
      {"cuMemHostAlloc",
       [](gpu::driver& of, stream, event) {
         std::uintptr_t block = 0;
         return of.allocate_pinned(0, block);
       }},
      {"cuMemFreeHost", [](gpu::driver& of, stream, event) { return of.free_pinned(1); }},
      {"cuMemAddressReserve",
       [](gpu::driver& of, stream, event) {
         byte_range range;
         return of.reserve(0, 0, range);
       }},
      {"cuMemAddressFree", [](gpu::driver& of, stream, event) { return of.free_reservation({}); }},
      {"cuMemCreate",
       [](gpu::driver& of, stream, event) {
         gpu::physical_handle handle = 0;
         return of.create(0, 0, handle);
       }},
      {"cuMemRelease", [](gpu::driver& of, stream, event) { return of.release(0); }},
      {"cuMemMap", [](gpu::driver& of, stream, event) { return of.map({}, 0); }},
      {"cuMemUnmap", [](gpu::driver& of, stream, event) { return of.unmap({}); }},
      {"cuMemSetAccess", [](gpu::driver& of, stream, event) { return of.allow_access({}, 0); }},
      {"cuMemExportToShareableHandle",
       [](gpu::driver& of, stream, event) {
         gpu::shareable_handle shared;
         return of.export_handle(0, gpu::handle_type::file_descriptor, shared);
       }},
      {"cuMemImportFromShareableHandle",
       [](gpu::driver& of, stream, event) {
         gpu::physical_handle handle = 0;
         return of.import_handle({}, handle);
       }},
      {"cuMemPoolCreate",
       [](gpu::driver& of, stream, event) {
         gpu::pool_handle pool = nullptr;
         return of.create_pool(5, pool);
       }},
      {"cuMemPoolDestroy", [](gpu::driver& of, stream, event) { return of.destroy_pool(nullptr); }},
      {"cuMemPoolSetAttribute",
       [](gpu::driver& of, stream, event) { return of.set_release_threshold(nullptr, 0); }},
      {"cuMemPoolGetAttribute",
       [](gpu::driver& of, stream, event) {
         std::size_t bytes = 0;
         return of.pool_reserved_bytes(nullptr, bytes);
       }},
      {"cuMemPoolSetAccess", [](gpu::driver& of, stream, event) { return of.set_pool_access(nullptr, 0); }},
      {"cuMemPoolTrimTo", [](gpu::driver& of, stream, event) { return of.trim_pool(nullptr, 0); }},
      {"cuStreamCreate",
       [](gpu::driver& of, stream, event) {
         stream made = nullptr;
         const status result = of.create_stream(made);
         if (result == status::success) EXPECT_EQ(of.destroy_stream(made), status::success);
         return result;
       }},
      {"cuStreamSynchronize", [](gpu::driver& of, stream idle, event) { return of.synchronize(idle); }},
      {"cuEventQuery", [](gpu::driver& of, stream, event point) { return of.query(point); }},
      {"cuEventSynchronize", [](gpu::driver& of, stream, event point) { return of.synchronize(point); }},
      {"cuEventRecord", [](gpu::driver& of, stream idle, event point) { return of.record(point, idle); }},
      {"cuStreamWaitEvent", [](gpu::driver& of, stream idle, event point) { return of.wait(idle, point); }},
      {"cuGraphExecUpdate", [](gpu::driver& of, stream, event) { return of.update(nullptr, nullptr); }},
      {"cuGraphExecDestroy",
       [](gpu::driver& of, stream, event) { return of.destroy_executable(gpu::executable_handle{}); }},
  };
}

/// Makes each call in and beside captures of each mode, and compares the result with a table of refusals.
/// Calls without a row are allowed.
void expect_refusals(std::vector<test::fake_refusal> const& table) {
  fake_device device{{.granularity_bytes = grain, .refusals = table}};
  const gpu::stream queue{device}, idle{device};
  const gpu::event point{device};
  for (auto const& [name, call] : refused_calls()) {
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
            first = call(device, idle, point);
            second = call(device, idle, point);
            EXPECT_EQ(device.exchange_capture_mode(exchanged), status::success);
          };
          if (here) {
            make();
          } else {
            in_another_thread(make);
          }
          const auto which = [&] {
            return name + " " + std::to_string(static_cast<int>(mode)) +
                   std::to_string(static_cast<int>(own)) + (here ? " own" : " other");
          };
          EXPECT_EQ(first == status::capture_unsupported, refused) << which();
          EXPECT_EQ(second == status::capture_invalidated, refused) << which();
          EXPECT_EQ(device.end_capture(queue, graph),
                    refused ? status::capture_invalidated : status::success);
          if (graph != nullptr) EXPECT_EQ(device.destroy_graph(graph), status::success);
        }
      }
    }
  }
}

TEST(fake_refusals, name_calls_of_the_driver_and_the_source_of_each) {
  std::set<std::string> known, named;
  for (auto const& [name, call] : refused_calls()) known.insert(name);
  for (test::fake_refusal const& each : test::stricter_refusals()) {
    EXPECT_TRUE(named.insert(each.call).second) << each.call << " has two rows";
    EXPECT_FALSE(each.source.empty()) << each.call;
  }
  EXPECT_EQ(known, named);
}

TEST(fake_refusals, of_an_h100_depend_on_mode_and_thread) { expect_refusals(test::observed_refusals()); }
TEST(fake_refusals, of_a_stricter_driver_depend_on_mode_and_thread) {
  expect_refusals(test::stricter_refusals());
}

TEST(fake_capture_options, calls_that_a_device_allows_can_be_taken_from_the_refused_ones) {
  fake_device device{{.granularity_bytes = grain, .refusals = {{.call = "cuMemAlloc", .source = "here"}}}};
  const gpu::stream queue{device};
  byte_range range;
  std::uintptr_t block = 0;
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
  EXPECT_EQ(device.reserve(grain, 0, range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.allocate(1, block), status::capture_unsupported);
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
}

TEST_F(fake_capture, safe_calls_leave_it_valid) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  int runs = 0;
  const gpu::stream fresh{device};
  destroy(captured(queue, [&] {
    const gpu::event point{fresh, device};
    EXPECT_EQ(device.launch_on_host(fresh, &count_up, &runs), status::success);
    EXPECT_EQ(device.launch_on_host(nullptr, &count_up, &runs), status::success);
    EXPECT_EQ(device.free_async(allocated(100, from, fresh), fresh), status::success);
    EXPECT_EQ(free_bytes(), 16 * grain - 512);
    device.run_all();
    EXPECT_EQ(runs, 2);
  }));
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

TEST_F(fake_capture, the_device_cannot_be_synchronised_whatever_the_mode_and_thread) {
  const gpu::stream queue{device};
  for (capture_mode mode : {capture_mode::global, capture_mode::thread_local_, capture_mode::relaxed}) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, mode), status::success);
    in_another_thread([&] { EXPECT_EQ(device.synchronize(), status::capture_unsupported); });
    EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  }
}

TEST_F(fake_capture, an_event_of_it_cannot_be_polled_or_awaited_by_the_host_during_and_after_it) {
  const gpu::stream queue{device}, idle{device};
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

TEST_F(fake_capture, waiting_for_its_event_draws_a_stream_in_until_it_ends) {
  int runs = 0;
  const gpu::stream queue{device}, forked{device};
  const gpu::event fork{device}, join{device};
  bool capturing = false;
  const gpu::graph_handle graph = captured(queue, [&] {
    EXPECT_EQ(device.record(fork, queue), status::success);
    EXPECT_EQ(device.wait(forked, fork), status::success);
    EXPECT_EQ(device.is_capturing(forked, capturing), status::success);
    EXPECT_TRUE(capturing);
    EXPECT_EQ(device.launch_on_host(forked, &count_up, &runs), status::success);
    EXPECT_EQ(device.record(join, forked), status::success);
    EXPECT_EQ(device.wait(queue, join), status::success);
  });
  EXPECT_EQ(nodes(graph), 1u);
  EXPECT_EQ(device.is_capturing(forked, capturing), status::success);
  EXPECT_FALSE(capturing);
  destroy(graph);
}

TEST_F(fake_capture, a_fork_is_joined_again_and_all_its_work_with_it) {
  int runs = 0;
  const gpu::stream queue{device}, forked{device};
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

TEST_F(fake_capture, a_fork_can_be_joined_by_way_of_a_third_stream) {
  const gpu::stream queue{device}, forked{device}, third{device};
  const gpu::event fork{device}, join{device}, last{device};
  destroy(captured(queue, [&] {
    EXPECT_EQ(device.record(fork, queue), status::success);
    EXPECT_EQ(device.wait(forked, fork), status::success);
    EXPECT_EQ(device.record(join, forked), status::success);
    EXPECT_EQ(device.wait(third, join), status::success);
    EXPECT_EQ(device.record(last, third), status::success);
    EXPECT_EQ(device.wait(queue, last), status::success);
  }));
}

TEST_F(fake_capture, it_is_ended_on_the_stream_where_it_began) {
  const gpu::stream queue{device}, forked{device};
  const gpu::event fork{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
  EXPECT_EQ(device.record(fork, queue), status::success);
  EXPECT_EQ(device.wait(forked, fork), status::success);
  EXPECT_EQ(device.end_capture(forked, graph), status::capture_unmatched);
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
}

TEST_F(fake_capture, it_is_ended_by_the_thread_that_began_it_unless_it_is_relaxed) {
  const gpu::stream queue{device};
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

TEST_F(fake_capture, it_waits_for_nothing_outside_it) {
  const gpu::stream queue{device}, idle{device};
  const gpu::event never{device}, outside{idle, device};
  gpu::event former{device};
  destroy(captured(idle, [&] { EXPECT_EQ(device.record(former, idle), status::success); }));
  for (gpu::event_handle each : {never.get(), outside.get(), former.get()}) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
    EXPECT_EQ(device.wait(queue, each), status::capture_isolation);
    EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  }
  device.run_all();
}

TEST_F(fake_capture, two_are_not_merged) {
  const gpu::stream first{device}, second{device};
  const gpu::event point{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(first, capture_mode::relaxed), status::success);
  EXPECT_EQ(device.begin_capture(second, capture_mode::relaxed), status::success);
  EXPECT_EQ(device.record(point, first), status::success);
  EXPECT_EQ(device.wait(second, point), status::capture_merge);
  EXPECT_EQ(device.end_capture(first, graph), status::capture_invalidated);
  EXPECT_EQ(device.end_capture(second, graph), status::capture_invalidated);
}

TEST_F(fake_capture, the_default_stream_is_not_drawn_in) {
  const gpu::stream queue{device};
  const gpu::event point{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
  EXPECT_EQ(device.record(point, queue), status::success);
  EXPECT_EQ(device.wait(nullptr, point), status::capture_implicit);
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
}

TEST_F(fake_capture, wrong_arguments_invalidate_it) {
  const gpu::stream queue{device};
  std::uintptr_t block = 0;
  const std::function<status()> wrong[] = {
      [&] { return device.launch_on_host(queue, nullptr, nullptr); },
      [&] { return device.allocate_async(1, nullptr, queue, block); },
      [&] { return device.free_async(12345, queue); },
  };
  for (auto const& call : wrong) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
    EXPECT_EQ(call(), status::invalid_value);
    EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  }
}

TEST_F(fake_capture, it_ends_with_the_stream_where_it_began) {
  gpu::event point{device};
  const gpu::stream forked{device};
  {
    const gpu::stream queue{device};
    EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
    EXPECT_EQ(device.record(point, queue), status::success);
    EXPECT_EQ(device.wait(forked, point), status::success);
  }
  bool capturing = true;
  EXPECT_EQ(device.is_capturing(forked, capturing), status::success);
  EXPECT_FALSE(capturing);
  EXPECT_EQ(device.synchronize(), status::success);
}

TEST_F(fake_capture, it_is_invalid_without_a_stream_that_was_drawn_in) {
  const gpu::event point{device};
  const gpu::stream queue{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
  EXPECT_EQ(device.record(point, queue), status::success);
  {
    const gpu::stream forked{device};
    EXPECT_EQ(device.wait(forked, point), status::success);
  }
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
}

// ---- graphs ----

TEST_F(fake_graph, it_is_launched_any_number_of_times_and_each_time_in_its_order) {
  std::vector<int> order;
  step first{&order, 1}, second{&order, 2};
  const gpu::stream queue{device};
  const gpu::graph_handle graph = captured(queue, [&] {
    launch(queue, first);
    launch(queue, second);
  });
  const gpu::executable_handle executable = instantiated(graph);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(device.launch(executable, queue), status::success);
  EXPECT_TRUE(order.empty());
  queue.synchronize();
  ASSERT_EQ(order.size(), 2000u);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i % 2 == 0 ? 1 : 2);
  destroy(executable);
  destroy(graph);
}

TEST_F(fake_graph, launches_of_one_are_ordered_also_on_several_streams) {
  std::vector<int> order;
  step inside{&order, 1}, before{&order, 2};
  const gpu::stream queue{device}, other{device};
  const gpu::graph_handle graph = captured(queue, [&] { launch(queue, inside); });
  const gpu::executable_handle executable = instantiated(graph);
  launch(queue, before);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  EXPECT_EQ(device.launch(executable, other), status::success);
  device.run(other);
  EXPECT_EQ(order, (std::vector{2, 1, 1}));
  destroy(executable);
  destroy(graph);
}

TEST_F(fake_graph, launches_go_on_when_it_is_destroyed) {
  int runs = 0;
  const gpu::stream queue{device};
  const gpu::graph_handle graph =
      captured(queue, [&] { EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success); });
  const gpu::executable_handle executable = instantiated(graph);
  destroy(graph);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  destroy(executable);
  EXPECT_EQ(device.launch(executable, queue), status::invalid_value);
  queue.synchronize();
  EXPECT_EQ(runs, 1);
}

TEST_F(fake_graph, handles_are_destroyed_once) {
  const gpu::stream queue{device};
  const gpu::graph_handle graph = captured(queue, [] {});
  gpu::executable_handle executable = instantiated(graph);
  destroy(executable);
  destroy(graph);
  std::size_t count = 0;
  EXPECT_EQ(device.destroy_executable(executable), status::invalid_value);
  EXPECT_EQ(device.destroy_graph(graph), status::invalid_value);
  EXPECT_EQ(device.node_count(graph, count), status::invalid_value);
  EXPECT_EQ(device.instantiate(graph, executable), status::invalid_value);
  EXPECT_EQ(device.destroy_executable(nullptr), status::invalid_value);
  EXPECT_EQ(device.destroy_graph(nullptr), status::invalid_value);
}

TEST_F(fake_graph, it_cannot_be_launched_on_a_capturing_stream) {
  const gpu::stream queue{device};
  int runs = 0;
  const gpu::graph_handle inner =
      captured(queue, [&] { EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success); });
  const gpu::executable_handle executable = instantiated(inner);
  gpu::graph_handle outer = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
  EXPECT_EQ(device.launch(executable, queue), status::capture_unsupported);
  EXPECT_EQ(device.end_capture(queue, outer), status::capture_invalidated);
  destroy(executable);
  destroy(inner);
}

TEST_F(fake_graph, memory_allocated_and_freed_in_it_is_two_nodes_and_its_own) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  std::uintptr_t inside = 0;
  const gpu::graph_handle graph = captured(queue, [&] {
    inside = allocated(grain, from, queue);
    EXPECT_EQ(device.free_async(inside, queue), status::success);
    EXPECT_EQ(device.pool_reserved_bytes(from), 0u);
  });
  EXPECT_EQ(nodes(graph), 2u);
  EXPECT_EQ(free_bytes(), 15 * grain);
  EXPECT_EQ(device.free(inside), status::invalid_value);
  EXPECT_EQ(device.free_async(inside, queue), status::invalid_value);

  gpu::executable_handle executable = instantiated(graph), second = nullptr;
  EXPECT_EQ(device.instantiate(graph, second), status::invalid_value) << "one at a time, since it allocates";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device.launch(executable, queue), status::success);
  queue.synchronize();
  destroy(executable);
  destroy(instantiated(graph));
  destroy(graph);
  EXPECT_EQ(free_bytes(), 16 * grain);
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

TEST_F(fake_graph, an_update_takes_a_graph_of_the_same_nodes_and_dependencies_only) {
  std::vector<int> order;
  step first{&order, 1}, second{&order, 2}, third{&order, 3};
  const gpu::stream queue{device}, side{device};
  const auto chain_of = [&](std::vector<step*> const& steps) {
    return captured(queue, [&] {
      for (step* each : steps) launch(queue, *each);
    });
  };
  const auto branches = [&] {
    return captured(queue, [&] {
      const gpu::event fork{queue, device};
      EXPECT_EQ(device.wait(side, fork), status::success);
      launch(queue, first);
      launch(side, second);
      const gpu::event join{side, device};
      EXPECT_EQ(device.wait(queue, join), status::success);
    });
  };
  const gpu::graph_handle chain = chain_of({&first, &second}), other = chain_of({&third, &first});
  const gpu::executable_handle executable = instantiated(chain);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  EXPECT_EQ(device.update(executable, other), status::success);
  EXPECT_EQ(device.launch(executable, queue), status::success);
  const gpu::graph_handle longer = chain_of({&first, &second, &third}), forked = branches(),
                          kernels = captured(queue, [&] {
                            launch(queue, first);
                            EXPECT_EQ(device.launch_kernel(queue, {.name = "k", .reads = {}, .writes = {}}),
                                      status::success);
                          });
  for (gpu::graph_handle each : {longer, forked, kernels})
    EXPECT_EQ(device.update(executable, each), status::graph_update_failed);
  EXPECT_EQ(device.launch(executable, side), status::success);
  device.run(side);
  EXPECT_EQ(order, (std::vector{1, 2, 3, 1, 3, 1})) << "launches from before are what they were";
  EXPECT_EQ(device.update(nullptr, chain), status::invalid_value);
  EXPECT_EQ(device.update(executable, nullptr), status::invalid_value);
  destroy(executable);
  for (gpu::graph_handle each : {chain, other, longer, forked, kernels}) destroy(each);
}

TEST_F(fake_graph, memory_that_a_launch_leaves_is_freed_before_the_next) {
  const gpu::stream queue{device};
  const gpu::pool_handle from = pool();
  std::uintptr_t left = 0;
  const gpu::graph_handle graph = captured(queue, [&] { left = allocated(grain, from, queue); });
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

TEST_F(fake_graph, a_capture_that_fails_gives_its_memory_back) {
  const gpu::stream queue{device};
  const gpu::event point{device};
  const gpu::pool_handle from = pool();
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::relaxed), status::success);
  (void)allocated(grain, from, queue);
  EXPECT_EQ(device.record(point, queue), status::success);  // an event holds on to nothing
  std::uintptr_t more = 0;
  EXPECT_EQ(device.allocate_async(16 * grain, from, queue, more), status::out_of_memory);
  EXPECT_EQ(device.end_capture(queue, graph), status::capture_invalidated);
  EXPECT_EQ(free_bytes(), 16 * grain);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.destroy_pool(from), status::success);
}

// ---- devices ----

TEST(fake_devices, without_any_every_call_says_so) {
  fake_device device{{.devices = 0}};
  int count = 7;
  std::uintptr_t block = 0;
  gpu::stream_handle stream = nullptr;
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.device_count(count), status::no_device);
  EXPECT_EQ(count, 7);
  EXPECT_EQ(device.make_current(0), status::no_device);
  EXPECT_EQ(device.allocate(1, block), status::no_device);
  EXPECT_EQ(device.create_stream(stream), status::no_device);
  EXPECT_EQ(device.end_capture(nullptr, graph), status::no_device);
  EXPECT_EQ(device.synchronize(), status::no_device);
}

TEST(fake_devices, each_thread_has_its_own_current_one) {
  fake_device device{{.devices = 3}};
  int count = 0;
  gpu::device_number now = 9;
  EXPECT_EQ(device.device_count(count), status::success);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(device.make_current(3), status::invalid_device);
  EXPECT_EQ(device.make_current(-1), status::invalid_device);
  EXPECT_EQ(device.make_current(2), status::success);
  EXPECT_EQ(device.current_device(now), status::success);
  EXPECT_EQ(now, 2);
  in_another_thread([&] {
    EXPECT_EQ(device.current_device(now), status::success);
    EXPECT_EQ(now, 0);
  });
}

TEST(fake_devices, each_has_its_own_memory_streams_and_work) {
  fake_device device{{.capacity_bytes = grain, .granularity_bytes = grain, .devices = 2}};
  std::uintptr_t first = 0, second = 0;
  int runs = 0;
  EXPECT_EQ(device.allocate(grain, first), status::success);
  EXPECT_EQ(device.launch_on_host(nullptr, &count_up, &runs), status::success);
  const gpu::event here{device};
  EXPECT_EQ(device.make_current(1), status::success);
  EXPECT_EQ(device.allocate(grain, second), status::success);
  EXPECT_EQ(device.record(here, nullptr), status::invalid_handle) << "an event of another device";
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(device.free(second), status::success);
  EXPECT_EQ(device.make_current(0), status::success);
  EXPECT_EQ(device.synchronize(), status::success);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(device.free(first), status::success);
}

TEST(fake_devices, memory_is_accessible_where_access_was_granted) {
  fake_device device{{.granularity_bytes = grain, .devices = 2}};
  byte_range range;
  gpu::physical_handle handle = 0;
  EXPECT_EQ(device.reserve(grain, 0, range), status::success);
  EXPECT_EQ(device.create(0, grain, handle), status::success);
  EXPECT_EQ(device.map(range, handle), status::success);
  EXPECT_EQ(device.allow_access(range, 1), status::success);
  EXPECT_TRUE(device.accessible(range.data(), grain, 1));
  EXPECT_FALSE(device.accessible(range.data(), grain, 0));
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
}

// ---- counts and failures ----

TEST_F(fake_calls, they_are_counted_by_name_and_in_order) {
  std::uintptr_t block = 0;
  EXPECT_EQ(device.allocate(0, block), status::invalid_value);
  EXPECT_EQ(device.free(allocated(1)), status::success);
  EXPECT_EQ(device.count("cuMemAlloc"), 2u);
  EXPECT_EQ(device.count("cuMemFree"), 1u);
  EXPECT_EQ(device.count("cuMemMap"), 0u);
  EXPECT_EQ(device.counts_total(), 3u);
  EXPECT_EQ(device.log(), (std::vector<std::string>{"cuMemAlloc", "cuMemAlloc", "cuMemFree"}));
  EXPECT_STREQ(device.error_name(status::out_of_memory), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(device.counts_total(), 3u) << "the name of an error is no call of the device";
}

TEST_F(fake_calls, those_of_the_capturing_thread_are_recorded_while_it_captures) {
  int runs = 0;
  const gpu::stream queue{device};
  destroy(captured(queue, [&] {
    bool capturing = false;
    EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
    EXPECT_EQ(device.launch_on_host(queue, &count_up, &runs), status::success);
    in_another_thread([&] { (void)free_bytes(); });
  }));
  (void)free_bytes();
  EXPECT_EQ(device.calls_during_capture(), (std::vector<std::string>{"cuLaunchHostFunc"}));
}

TEST_F(fake_calls, the_nth_that_can_fail_does_and_has_no_effect) {
  std::uintptr_t block = 0;
  byte_range range;
  device.fail_from = 1;
  device.fail_count = 2;
  EXPECT_EQ(device.free(allocated(1)), status::success);  // a free is not counted
  EXPECT_EQ(device.allocate(1, block), status::out_of_memory);
  device.failure = status::unknown;
  EXPECT_EQ(device.reserve(grain, 0, range), status::unknown);
  EXPECT_EQ(block, 0u);
  EXPECT_EQ(device.outstanding, 0u);
  EXPECT_EQ(device.reserve(grain, 0, range), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.calls, 4u);
}

TEST_F(fake_calls, the_nth_of_one_function_fails) {
  const std::uintptr_t first = allocated(1);
  std::uintptr_t block = 0;
  device.fail_in("cuMemAlloc", 2);
  device.fail_in("cuMemFree", 0, status::illegal_address);
  EXPECT_EQ(device.free(first), status::illegal_address);
  EXPECT_EQ(device.free(first), status::success);
  EXPECT_EQ(device.free(allocated(1)), status::success);
  EXPECT_EQ(device.allocate(1, block), status::out_of_memory);
  EXPECT_EQ(device.free(allocated(1)), status::success);
  device.fail_in("cuMemAlloc", device.count("cuMemAlloc") + 1, status::unknown, 2);
  EXPECT_EQ(device.free(allocated(1)), status::success);
  EXPECT_EQ(device.allocate(1, block), status::unknown);
  EXPECT_EQ(device.allocate(1, block), status::unknown);
  device.fail_next("cuMemAlloc");
  EXPECT_EQ(device.allocate(1, block), status::out_of_memory);
  EXPECT_EQ(device.free(allocated(1)), status::success);
}

TEST_F(fake_calls, those_that_give_back_fail_by_name_only) {
  const gpu::stream queue{device};
  gpu::stream_handle stream = nullptr;
  gpu::event_handle event = nullptr;
  EXPECT_EQ(device.create_stream(stream), status::success);
  EXPECT_EQ(device.create_event(event), status::success);
  const byte_range range = reserved(grain);
  const gpu::physical_handle handle = created(grain);
  EXPECT_EQ(device.map(range, handle), status::success);
  const std::uintptr_t block = allocated(1);
  std::uintptr_t pinned = 0;
  EXPECT_EQ(device.allocate_pinned(1, pinned), status::success);
  const gpu::pool_handle from = pool();
  const std::uintptr_t pooled = allocated(1, from, queue);
  const gpu::graph_handle graph = captured(queue, [] {});
  const gpu::executable_handle executable = instantiated(graph);

  device.fail_from = 0;
  device.fail_count = fake_device::never;
  EXPECT_EQ(device.unmap(range), status::success);
  EXPECT_EQ(device.release(handle), status::success);
  EXPECT_EQ(device.free_reservation(range), status::success);
  EXPECT_EQ(device.free(block), status::success);
  EXPECT_EQ(device.free_pinned(pinned), status::success);
  EXPECT_EQ(device.free_async(pooled, queue), status::success);
  EXPECT_EQ(device.destroy_pool(from), status::success);
  EXPECT_EQ(device.destroy_executable(executable), status::success);
  EXPECT_EQ(device.destroy_graph(graph), status::success);
  EXPECT_EQ(device.destroy_event(event), status::success);
  EXPECT_EQ(device.destroy_stream(stream), status::success);
  EXPECT_EQ(device.synchronize(), status::out_of_memory);
  device.run_all();
}

TEST_F(fake_calls, an_end_of_a_capture_that_fails_ends_it) {
  const gpu::stream queue{device};
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(queue, capture_mode::global), status::success);
  device.fail_next("cuStreamEndCapture", status::unknown);
  EXPECT_EQ(device.end_capture(queue, graph), status::unknown);
  EXPECT_EQ(graph, nullptr);
  bool capturing = true;
  EXPECT_EQ(device.is_capturing(queue, capturing), status::success);
  EXPECT_FALSE(capturing);
}

TEST(fake_device_threads, any_thread_may_call_at_any_time) {
  fake_device device{{.capacity_bytes = std::size_t{1} << 30, .granularity_bytes = grain}};
  std::vector<std::thread> threads;
  std::vector<int> runs(4);
  for (std::size_t t = 0; t < runs.size(); ++t) {
    threads.emplace_back([&device, &count = runs[t]] {
      const gpu::stream queue{device};
      gpu::event point{device};
      for (int i = 0; i < 200; ++i) {
        byte_range range;
        EXPECT_EQ(device.reserve(grain, 0, range), status::success);
        EXPECT_EQ(device.launch_on_host(queue, &count_up, &count), status::success);
        point.record(queue);
        std::uintptr_t block = 0;
        EXPECT_EQ(device.allocate(100, block), status::success);
        EXPECT_EQ(device.wait(nullptr, point), status::success);
        EXPECT_EQ(device.free(block), status::success);
        point.wait();
        EXPECT_EQ(device.free_reservation(range), status::success);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (int each : runs) EXPECT_EQ(each, 200);
  device.run_all();
}

// ---- at its end ----

TEST(fake_device_end, what_is_left_is_named) {
  const auto left_by = [](std::function<void(fake_device&)> const& body) {
    return failures_of([&] {
      fake_device device{{.granularity_bytes = grain}};
      body(device);
    });
  };
  const auto contains = [](std::string const& text, char const* part) {
    return text.find(part) != std::string::npos;
  };
  byte_range range;
  gpu::physical_handle handle = 0;
  std::uintptr_t block = 0;
  gpu::stream_handle stream = nullptr;
  gpu::event_handle event = nullptr;
  gpu::pool_handle pool = nullptr;
  gpu::graph_handle graph = nullptr;
  gpu::executable_handle executable = nullptr;
  const std::pair<char const*, std::function<void(fake_device&)>> cases[] = {
      {"1 reservations of addresses", [&](fake_device& of) { (void)of.reserve(grain, 0, range); }},
      {"handles of physical memory", [&](fake_device& of) { (void)of.create(0, grain, handle); }},
      {"1 mappings",
       [&](fake_device& of) {
         (void)of.reserve(grain, 0, range);
         (void)of.create(0, grain, handle);
         (void)of.map(range, handle);
         (void)of.release(handle);
       }},
      {"a device block of 100 bytes", [&](fake_device& of) { (void)of.allocate(100, block); }},
      {"a managed block of 100 bytes", [&](fake_device& of) { (void)of.allocate_managed(100, block); }},
      {"a pinned block of 100 bytes", [&](fake_device& of) { (void)of.allocate_pinned(100, block); }},
      {"pools were not destroyed", [&](fake_device& of) { (void)of.create_pool(0, pool); }},
      {"blocks of pools were not freed",
       [&](fake_device& of) {
         (void)of.create_pool(0, pool);
         (void)of.allocate_async(1, pool, nullptr, block);
         (void)of.destroy_pool(pool);
       }},
      {"1 streams", [&](fake_device& of) { (void)of.create_stream(stream); }},
      {"1 events", [&](fake_device& of) { (void)of.create_event(event); }},
      {"functions of the host were queued",
       [&](fake_device& of) { (void)of.launch_on_host(nullptr, &count_up, nullptr); }},
      {"1 captures were not ended",
       [&](fake_device& of) {
         (void)of.create_stream(stream);
         (void)of.begin_capture(stream, capture_mode::global);
       }},
      {"1 graphs",
       [&](fake_device& of) {
         (void)of.create_stream(stream);
         (void)of.begin_capture(stream, capture_mode::global);
         (void)of.end_capture(stream, graph);
       }},
      {"1 executable graphs",
       [&](fake_device& of) {
         (void)of.create_stream(stream);
         (void)of.begin_capture(stream, capture_mode::global);
         (void)of.end_capture(stream, graph);
         (void)of.instantiate(graph, executable);
       }},
      {"1 blocks that a graph allocated",
       [&](fake_device& of) {
         (void)of.create_stream(stream);
         (void)of.create_pool(0, pool);
         (void)of.begin_capture(stream, capture_mode::global);
         (void)of.allocate_async(1, pool, stream, block);
         (void)of.end_capture(stream, graph);
         (void)of.instantiate(graph, executable);
         (void)of.launch(executable, stream);
       }},
  };
  for (auto const& [sentence, body] : cases) EXPECT_TRUE(contains(left_by(body), sentence)) << sentence;
  EXPECT_EQ(left_by([](fake_device& of) {
              std::uintptr_t freed = 0;
              (void)of.allocate(1, freed);
              (void)of.free_async(freed, nullptr);  // of itself when the work has run
            }),
            "");
}

}  // namespace
}  // namespace tidemark
