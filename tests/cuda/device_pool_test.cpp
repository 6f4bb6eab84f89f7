// SPDX-License-Identifier: Apache-2.0
// Strategy: a heap that maps memory of a fake device, which fails the test if work meets memory that is not
// there or that other work still uses; and the same heap on chunks of an upstream, which compares each piece
// it gets back. Every call of the upstream, of the records and of the driver fails once.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/cuda/resources/detail/heap_slabs.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "seeds.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using classes = gpu::detail::device_classes;

constexpr std::size_t heap_unit = 2 * MiB;

// ---- classes ----------------------------------------------------------------------------------------------

TEST(device_classes, request_gets_the_smallest_sufficient_class) {
  EXPECT_EQ(classes::index_of(0), 0u);
  std::size_t last = 0;
  for (std::size_t i = 0; i < gpu::detail::device_class_count; ++i) {
    EXPECT_EQ(classes::index_of(last + 1), i) << last + 1;
    EXPECT_EQ(classes::index_of(classes::bytes(i)), i) << classes::bytes(i);
    last = classes::bytes(i);
  }
}

TEST(device_slabs, free_only_blocks_that_were_allocated) {
  gpu::detail::heap_slabs slabs{std::pmr::new_delete_resource()};
  gpu::detail::heap_range range;
  range.begin = 1 * MiB;
  range.bytes = 64 * KiB;
  gpu::detail::heap_slab& slab = *slabs.make(classes::index_of(10 * KiB), range.bytes);
  slabs.open(slab, range);
  EXPECT_EQ(slabs.try_allocate(slab.index), reinterpret_cast<void*>(range.begin));
  EXPECT_FALSE(slabs.try_deallocate(slab, 256));
  EXPECT_FALSE(slabs.try_deallocate(slab, 10 * KiB));
  EXPECT_FALSE(slabs.try_deallocate(slab, 60 * KiB)) << "behind the last block";
  EXPECT_TRUE(slabs.try_deallocate(slab, 0));
  (void)slabs.close(slab);
}

// ---- mapped memory ----------------------------------------------------------------------------------------

struct device_pools_of_a_stream : ::testing::Test {
  fake_device device{{.capacity_bytes = 64 * MiB}};
  gpu::stream stream{device};

  [[nodiscard]] device_pool_options with(device_pool_options options = {}) const {
    options.stream = stream;
    return options;
  }
  void* allocate_written(device_pool& pool, std::size_t bytes) {
    void* const block = pool.allocate(bytes);
    device.write(stream, block, bytes);
    return block;
  }
  static std::vector<void*> allocate_blocks(device_pool& pool, std::size_t blocks, std::size_t bytes) {
    std::vector<void*> taken(blocks);
    for (void*& block : taken) block = pool.allocate(bytes);
    return taken;
  }
  static void deallocate_blocks(device_pool& pool, std::vector<void*> const& blocks, std::size_t bytes) {
    for (void* block : blocks) pool.deallocate(block, bytes);
    pool.check_invariants();
  }
};

/// With a pool that has no options.
struct device_pool_test : device_pools_of_a_stream {
  device_pool pool{with(), device};
};

TEST_F(device_pool_test, maps_memory_only_under_blocks) {
  EXPECT_EQ(device.mapped_bytes(), 0u);
  void* const first = allocate_written(pool, 3 * MiB);
  EXPECT_EQ(device.mapped_bytes(), 2 * heap_unit);
  void* const second = allocate_written(pool, 1 * MiB + 1);  // begins in the second unit
  EXPECT_EQ(second, static_cast<char*>(first) + 3 * MiB);
  EXPECT_EQ(device.mapped_bytes(), 3 * heap_unit);
  EXPECT_EQ(pool.stats().held_bytes, 3 * heap_unit);
  EXPECT_EQ(pool.stats().used_bytes, 4 * MiB + 512);
  EXPECT_EQ(device.count("cuMemSetAccess"), 2u) << "one call for each block";
  pool.check_invariants();
}

TEST_F(device_pool_test, allocates_from_the_smallest_fitting_range_at_the_lowest_address) {
  std::vector<void*> blocks;
  for (std::size_t mib : {8u, 2u, 4u, 2u, 4u, 2u, 6u}) blocks.push_back(pool.allocate(mib * MiB));
  pool.deallocate(blocks[0], 8 * MiB);
  pool.deallocate(blocks[2], 4 * MiB);
  pool.deallocate(blocks[4], 4 * MiB);
  EXPECT_EQ(pool.allocate(3 * MiB), blocks[2]);
  EXPECT_EQ(pool.allocate(3 * MiB), blocks[4]);
  EXPECT_EQ(pool.allocate(3 * MiB), blocks[0]);
  EXPECT_EQ(pool.stats().misses, 7u);
  pool.check_invariants();
}

TEST_F(device_pool_test, merges_free_neighbours) {
  const std::vector<void*> blocks = allocate_blocks(pool, 4, 3 * MiB);
  for (int i : {0, 2, 1}) pool.deallocate(blocks[static_cast<std::size_t>(i)], 3 * MiB);
  pool.check_invariants();
  EXPECT_EQ(pool.allocate(9 * MiB), blocks[0]);
  EXPECT_EQ(device.mapped_bytes(), 6 * heap_unit);
}

TEST_F(device_pool_test, moves_idle_memory_before_it_creates_more) {
  std::vector<void*> blocks(8);
  for (void*& block : blocks) block = allocate_written(pool, 2 * heap_unit);
  for (std::size_t i = 0; i < 8; i += 2) pool.deallocate(blocks[i], 2 * heap_unit);
  stream.synchronize();
  (void)allocate_written(pool, 8 * heap_unit);  // no free range has as much
  EXPECT_GE(pool.moved_units(), 5u);
  EXPECT_LE(pool.stats().held_bytes, 16 * heap_unit + 3 * heap_unit);
  pool.check_invariants();
  stream.synchronize();
}

TEST_F(device_pool_test, waits_for_idle_memory_only_if_new_memory_would_exceed_the_slack) {
  std::vector<void*> blocks(16);
  for (void*& block : blocks) block = allocate_written(pool, heap_unit);
  for (std::size_t i = 1; i < 16; i += 2) pool.deallocate(blocks[i], heap_unit);
  const test::noting_work last{device, stream};
  void* const created = allocate_written(pool, 2 * heap_unit);
  EXPECT_FALSE(last.has_run);
  EXPECT_EQ(pool.moved_units(), 0u);
  EXPECT_EQ(pool.stats().held_bytes, 17 * heap_unit);
  void* const moved = allocate_written(pool, 20 * heap_unit);
  EXPECT_TRUE(last.has_run);
  EXPECT_GT(pool.moved_units(), 0u);
  EXPECT_LE(pool.stats().held_bytes, 32 * heap_unit) << "all that the device has";
  pool.deallocate(created, 2 * heap_unit);
  pool.deallocate(moved, 20 * heap_unit);
  pool.check_invariants();
}

TEST_F(device_pool_test, reserves_more_addresses_after_the_first_are_used_up) {
  device.fail_in("cuMemAddressReserve", 0, gpu::status::out_of_memory, 7);  // 512 MiB down to 8 MiB
  void* const first = allocate_written(pool, 2 * heap_unit);
  EXPECT_EQ(device.reserved_bytes(), 2 * heap_unit);
  void* const second = allocate_written(pool, 2 * heap_unit);
  EXPECT_EQ(device.reserved_bytes(), 2 * heap_unit + 512 * MiB);
  deallocate_blocks(pool, {first, second}, 2 * heap_unit);
  EXPECT_EQ(pool.allocate(2 * heap_unit), first);
}

// ---- random programs --------------------------------------------------------------------------------------

// Late work writes every block, so that memory that was moved, reused or returned too soon fails the test.
// The device is small enough that memory is short.
struct random_blocks {
  random_blocks(fake_device& on, gpu::stream_handle of, std::uint64_t seed)
      : device{&on},
        stream{of},
        random{seed},
        pool{{.stream = of, .max_cached_bytes = seed % 2 != 0 ? 8 * MiB : 1 * GiB}, on} {}
  random_blocks(random_blocks const&) = delete;
  random_blocks& operator=(random_blocks const&) = delete;
  ~random_blocks() {
    while (!live.empty()) free_last();
  }

  void step() {
    if (live.empty() || random() % 100 < (live_bytes < 40 * MiB ? 60u : 40u)) {
      allocate();
    } else {
      std::swap(live[random() % live.size()], live.back());
      free_last();
    }
    if (random() % 64 == 0) device->run(stream);
    if (random() % 512 == 0) (void)pool.trim(random() % (16 * MiB));
  }
  void check_contents() const { pool.check_invariants(); }

  void allocate() {
    const std::size_t bytes = (std::size_t{1} << random() % 24) + random() % 5000;
    const std::size_t align = random() % 16 == 0 ? std::size_t{1} << random() % 22 : 256;
    try {
      live.push_back({pool.allocate(bytes, align), bytes, align});
    } catch (out_of_memory const&) {
      ++refused;
      return;
    }
    live_bytes += bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(live.back().first) % align, 0u);
    device->write(stream, live.back().first, bytes);
  }
  void free_last() {
    pool.deallocate(live.back().first, live.back().bytes, live.back().align);
    live_bytes -= live.back().bytes;
    live.pop_back();
  }

  struct live_block {
    void* first;
    std::size_t bytes, align;
  };
  fake_device* device;
  gpu::stream_handle stream;
  std::mt19937_64 random;
  device_pool pool;
  std::vector<live_block> live;
  std::size_t live_bytes = 0;
  std::uint64_t refused = 0;
};

TEST_F(device_pool_test, serves_random_programs_on_a_small_device) {
  std::uint64_t moves = 0, refused = 0;
  test::run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        random_blocks program{device, stream, seed};
        run(program);
        moves += program.pool.moved_units();
        refused += program.refused;
      },
      5000);
  stream.synchronize();
  EXPECT_GT(moves, 100u);
  EXPECT_GT(refused, 10u);
}

// ---- limits and trims -------------------------------------------------------------------------------------

TEST_F(device_pool_test, trim_returns_idle_memory_of_whole_units) {
  std::vector<void*> blocks = allocate_blocks(pool, 8, heap_unit);
  void* const small = pool.allocate(1000);
  deallocate_blocks(pool, {blocks[0], blocks[3], blocks[4], blocks[7]}, heap_unit);
  EXPECT_EQ(pool.stats().cached_bytes, 4 * heap_unit);
  EXPECT_EQ(pool.trim(2 * heap_unit), 2 * heap_unit);
  EXPECT_EQ(device.physical_bytes(), 7 * heap_unit);
  EXPECT_EQ(pool.trim(), 2 * heap_unit);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
  EXPECT_EQ(pool.stats().stranded_bytes, heap_unit - 1 * KiB) << "the rest of the small block's unit";
  EXPECT_EQ(device.physical_bytes(), 5 * heap_unit);
  pool.check_invariants();
  deallocate_blocks(pool, {blocks[1], blocks[2], blocks[5], blocks[6]}, heap_unit);
  pool.deallocate(small, 1000);
  pool.clear();
  EXPECT_EQ(device.physical_bytes(), 0u);
  pool.check_invariants();
}

TEST_F(device_pool_test, returns_idle_memory_beyond_the_limit) {
  device_pool limited{with({.max_cached_bytes = 4 * heap_unit}), device};
  const std::vector<void*> blocks = allocate_blocks(limited, 12, heap_unit);
  for (void* block : blocks) {
    limited.deallocate(block, heap_unit);
    ASSERT_LE(limited.stats().cached_bytes, 4 * heap_unit);
  }
  EXPECT_LE(device.physical_bytes(), 4 * heap_unit);
  limited.check_invariants();
}

TEST_F(device_pool_test, returns_idle_memory_for_an_exhausted_pool) {
  device_pool other{with(), device};
  pool.deallocate(pool.allocate(60 * MiB), 60 * MiB);
  EXPECT_THROW((void)other.allocate(60 * MiB), out_of_memory) << "the other thread trims in its next call";
  pool.deallocate(pool.allocate(1000), 1000);
  void* const block = other.allocate(60 * MiB);
  other.deallocate(block, 60 * MiB);
}

TEST_F(device_pool_test, keeps_mapped_addresses_of_graphs_until_release) {
  device_pool graphs{with({.keeps_addresses = true}), device}, other{with(), device};
  void* const block = allocate_written(graphs, 20 * heap_unit);
  graphs.deallocate(block, 20 * heap_unit);
  stream.synchronize();
  EXPECT_EQ(graphs.trim(), 0u);
  EXPECT_THROW((void)other.allocate(20 * heap_unit), out_of_memory);
  (void)graphs.allocate(1000);
  EXPECT_TRUE(device.accessible(block, 20 * heap_unit));
  EXPECT_EQ(graphs.moved_units(), 0u);
  graphs.release();
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(device_pool_test, maps_idle_memory_of_graphs_a_second_time) {
  device_pool graphs{with({.keeps_addresses = true}), device};
  void* const first = allocate_written(graphs, 10 * heap_unit);
  void* const between = allocate_written(graphs, heap_unit);
  graphs.deallocate(first, 10 * heap_unit);
  void* const larger = allocate_written(graphs, 11 * heap_unit);
  EXPECT_EQ(device.physical_bytes(), 12 * heap_unit);
  EXPECT_EQ(device.mapped_bytes(), 22 * heap_unit);
  EXPECT_EQ(graphs.moved_units(), 10u);
  EXPECT_TRUE(device.accessible(first, 10 * heap_unit)) << "a graph may use the address";
  const test::violation_recorder recorder;
  graphs.deallocate(first, 10 * heap_unit);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 1u);
  graphs.deallocate(larger, 11 * heap_unit);
  graphs.deallocate(between, heap_unit);
  EXPECT_NE(allocate_written(graphs, 10 * heap_unit), first) << "its memory serves another address";
  graphs.check_invariants();
  graphs.release();
  EXPECT_EQ(device.mapped_bytes(), 0u);
  EXPECT_EQ(allocate_written(graphs, 10 * heap_unit), first);
}

TEST_F(device_pool_test, keeps_idle_memory_of_graphs_after_a_refused_request) {
  device_pool graphs{with({.keeps_addresses = true}), device};
  void* const first = allocate_written(graphs, 20 * heap_unit);
  (void)allocate_written(graphs, 2 * heap_unit);
  graphs.deallocate(first, 20 * heap_unit);
  EXPECT_THROW((void)graphs.allocate(31 * heap_unit), out_of_memory);
  EXPECT_EQ(graphs.stats().held_bytes, 22 * heap_unit) << "without the memory that the request created";
  EXPECT_EQ(device.physical_bytes(), 22 * heap_unit);
  EXPECT_NE(allocate_written(graphs, 30 * heap_unit), nullptr);
  EXPECT_EQ(device.physical_bytes(), 32 * heap_unit);
  graphs.check_invariants();
}

/// With a pool of graphs whose idle memory is held, but is mapped only at addresses that no block gets.
struct device_pool_retired : device_pools_of_a_stream {
  gpu::device_resource others{{}, device};
  void* const taken = others.allocate(1000, 256);
  device_pool graphs{with({.keeps_addresses = true}), device};
  void* const first = allocate_written(graphs, 4 * heap_unit);

  device_pool_retired() {
    void* const second = graphs.allocate(heap_unit);
    for (auto [block, units] : {std::pair{first, std::size_t{4}}, {second, std::size_t{1}}}) {
      graphs.deallocate(block, units * heap_unit);
      // The first reservation has no free range of this size, and the device has less memory.
      EXPECT_THROW((void)graphs.allocate(32 * heap_unit), out_of_memory);
    }
    EXPECT_EQ(device.physical_bytes(), 5 * heap_unit);
    EXPECT_EQ(graphs.moved_units(), 5u);
  }
  ~device_pool_retired() override { others.deallocate(taken, 1000, 256); }
};

TEST_F(device_pool_retired, release_waits_for_work_before_it_unmaps) {
  graphs.release();
  stream.synchronize();
  EXPECT_EQ(device.mapped_bytes(), 0u);
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(device_pool_retired, release_keeps_the_memory_if_it_cannot_wait) {
  device.fail_next("cuStreamSynchronize", gpu::status::capture_unsupported);
  graphs.release();
  EXPECT_TRUE(device.accessible(first, 4 * heap_unit));
  EXPECT_EQ(graphs.stats().held_bytes, device.physical_bytes());
  graphs.check_invariants();
  graphs.release();
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(device_pool_test, returns_memory_at_two_addresses_after_each_refused_call) {
  for (std::size_t n = 0; n < 16; ++n) {
    SCOPED_TRACE(n);
    device_pool graphs{with({.keeps_addresses = true}), device};
    void* const first = allocate_written(graphs, 2 * heap_unit);
    (void)allocate_written(graphs, heap_unit);
    graphs.deallocate(first, 2 * heap_unit);
    (void)allocate_written(graphs, 3 * heap_unit);
    device.fail_from = device.calls + n;
    device.fail_count = 1;
    graphs.release();
    device.fail_from = fake_device::never;
    graphs.check_invariants();
    graphs.release();
    EXPECT_EQ(device.mapped_bytes(), 0u);
    EXPECT_EQ(device.physical_bytes(), 0u);
  }
}

TEST_F(device_pool_test, random_blocks_of_graphs_share_no_memory) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    device_pool graphs{with({.keeps_addresses = true}), device};
    std::mt19937_64 random{seed};
    std::vector<std::pair<void*, std::size_t>> live;
    std::size_t live_bytes = 0;
    for (int i = 0; i < 2'000; ++i) {
      const std::size_t bytes = random() % (random() % 4 == 0 ? 12 * MiB : 2 * MiB);
      if (live_bytes + bytes <= 40 * MiB && random() % 100 < 60) {
        live.emplace_back(allocate_written(graphs, bytes), bytes);
        live_bytes += bytes;
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        graphs.deallocate(live.back().first, live.back().second);
        live_bytes -= live.back().second;
        live.pop_back();
      }
      if (i % 16 == 0) graphs.check_invariants();
    }
    EXPECT_GT(graphs.moved_units(), 20u);
    graphs.release();
    EXPECT_EQ(device.mapped_bytes(), 0u);
  }
}

// ---- statistics -------------------------------------------------------------------------------------------

TEST_F(device_pool_test, reports_the_common_pool_statistics) {
  device_pool named{with({.name = "blocks"}), device};
  const std::vector<void*> blocks = allocate_blocks(named, 3, 3000);
  named.deallocate(blocks[0], 3000);
  void* const large = named.allocate(10 * MiB);
  const pool_stats stats = named.stats();
  EXPECT_STREQ(stats.name, "blocks");
  EXPECT_EQ(stats.allocations, 4u);
  EXPECT_EQ(stats.deallocations, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.used_blocks, 3u);
  EXPECT_EQ(stats.requested_bytes, 2 * 3000 + 10 * MiB);
  EXPECT_EQ(stats.used_bytes, 2 * 3 * KiB + 10 * MiB);
  EXPECT_EQ(stats.cached_bytes, 0u);
  EXPECT_EQ(stats.held_bytes, stats.used_bytes + stats.cached_bytes + stats.stranded_bytes);
  EXPECT_EQ(stats.held_bytes, device.physical_bytes());
  named.reset_stats();
  EXPECT_EQ(named.stats().allocations, 0u);
  EXPECT_EQ(named.stats().used_blocks, 3u);
  deallocate_blocks(named, {blocks[1], blocks[2]}, 3000);
  deallocate_blocks(named, {large}, 10 * MiB);
  EXPECT_EQ(named.stats().deallocations, 3u);
  EXPECT_EQ(named.stats().requested_bytes, 0u);
  EXPECT_GE(named.stats().cached_bytes, 4 * heap_unit);
}

// The largest request is served, and a larger one is refused.
TEST_F(device_pool_test, reports_the_largest_request_exactly) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    device_pool some{
        with({.max_cached_bytes = seed % 2 == 0 ? SIZE_MAX : 4 * MiB, .keeps_addresses = seed % 4 == 0}),
        device};
    gpu::device_resource others{{}, device};
    std::mt19937_64 random{seed};
    std::vector<std::pair<void*, std::size_t>> live;
    const std::size_t taken_bytes = random() % (20 * MiB) + 1;
    void* const taken = others.allocate(taken_bytes, 256);
    for (int i = 0; i < 300; ++i) {
      if (live.size() < 12 && random() % 3 != 0) {
        const std::size_t bytes = random() % (random() % 4 == 0 ? 12 * MiB : 3 * MiB);
        if (bytes <= some.largest_request()) live.emplace_back(allocate_written(some, bytes), bytes);
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        some.deallocate(live.back().first, live.back().second);
        live.pop_back();
      }
      if (i % 10 != 0) continue;
      if (const std::size_t most = some.largest_request(); most != 0) {
        void* block = nullptr;
        EXPECT_NO_THROW(block = allocate_written(some, most));
        if (block != nullptr) some.deallocate(block, most);
      }
      const std::size_t most = some.largest_request();
      some.check_invariants();
      EXPECT_THROW((void)some.allocate(most + 1), out_of_memory);
    }
    stream.synchronize();
    some.release();
    others.deallocate(taken, taken_bytes, 256);
  }
}

// The driver has addresses for each request only. The free ranges before the last are large enough, but not at
// an aligned address.
TEST(device_pool_devices, aligned_block_gets_new_addresses_among_many_free_ranges) {
  fake_device device{{.capacity_bytes = 256 * MiB}};
  gpu::stream stream{device};
  device_pool pool{{.stream = stream}, device};
  const auto bytes_of = [](std::size_t i) {
    return (i == 0 ? 12u : i % 2 == 0 ? (i < 34 ? 17u : 14u) : (i < 33 ? 15u : 18u)) * heap_unit / 8;
  };
  std::vector<void*> blocks;
  device.fail_in("cuMemAddressReserve", 0, gpu::status::out_of_memory, 4);
  pool.deallocate(pool.allocate(556 * heap_unit / 8), 556 * heap_unit / 8);
  for (std::size_t i = 0; i < 35; ++i) blocks.push_back(pool.allocate(bytes_of(i)));
  for (std::size_t i = 1; i < 35; i += 2) pool.deallocate(blocks[i], bytes_of(i));
  pool.trim();
  const std::size_t calls = device.count("cuMemAddressReserve");
  device.fail_in("cuMemAddressReserve", calls, gpu::status::out_of_memory, 9);
  (void)pool.allocate(3600 * KiB, heap_unit);
  EXPECT_EQ(device.count("cuMemAddressReserve"), calls + 10);
  pool.release();
}

TEST(device_pool_devices, largest_request_ignores_captures_on_the_current_device) {
  fake_device device{{.capacity_bytes = 64 * MiB, .devices = 2}};
  device_pool pool{{.device = 1}, device};
  void* const first = pool.allocate(10 * heap_unit);
  void* const live = pool.allocate(heap_unit);
  pool.deallocate(first, 10 * heap_unit);
  EXPECT_EQ(pool.largest_request(), 31 * heap_unit);
  gpu::stream_handle const blocking = device.create_blocking_stream();
  ASSERT_EQ(device.begin_capture(blocking, gpu::capture_mode::relaxed), gpu::status::success);
  EXPECT_EQ(pool.largest_request(), 31 * heap_unit);
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(blocking, graph), gpu::status::success);
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
  EXPECT_EQ(device.destroy_stream(blocking), gpu::status::success);
  pool.deallocate(live, heap_unit);
}

// ---- other streams ----------------------------------------------------------------------------------------

TEST_F(device_pool_test, keeps_a_block_in_use_if_its_event_cannot_be_awaited) {
  gpu::stream other{device};
  void* const block = pool.allocate(4096);
  gpu::event done{other, device};
  const test::warning_recorder recorder;
  device.fail_next("cuStreamWaitEvent", gpu::status::unknown);
  device.fail_next("cuEventSynchronize", gpu::status::capture_unsupported);
  pool.deallocate_after(block, 4096, 256, done);
  EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(pool.stats().used_blocks, 1u);
  pool.check_invariants();
}

template <class Pool, class Behind>
concept deallocates_after =
    requires(Pool& pool, Behind behind) { pool.deallocate_after(nullptr, 1, 1, behind); };
struct both_handles {
  operator gpu::event_handle() const;   // NOLINT(google-explicit-constructor)
  operator gpu::stream_handle() const;  // NOLINT(google-explicit-constructor)
};
static_assert(deallocates_after<device_pool, gpu::event const&> &&
              deallocates_after<device_pool, gpu::stream const&> &&
              deallocates_after<device_pool, gpu::event_handle> &&
              deallocates_after<device_pool, gpu::stream_handle>);
static_assert(!deallocates_after<device_pool, std::nullptr_t> &&
                  !deallocates_after<device_pool, both_handles>,
              "what may be an event and a stream says which");

TEST_F(device_pool_test, deallocate_after_makes_its_own_stream_wait_for_the_other_stream) {
  gpu::stream other{device};
  void* const block = pool.allocate(4096);
  const test::noting_work reader{device, other};
  pool.deallocate_after(block, 4096, 256, other);
  EXPECT_EQ(device.count("cuStreamWaitEvent"), 1u);
  EXPECT_EQ(device.count("cuStreamSynchronize"), 0u);
  EXPECT_EQ(device.count("cuEventDestroy"), 1u) << "the event is the library's";
  EXPECT_EQ(pool.allocate(4096), block) << "for work that comes behind that wait";
  EXPECT_FALSE(reader.has_run);
  device.run(stream);
  EXPECT_TRUE(reader.has_run);
  pool.deallocate(block, 4096);
}

TEST_F(device_pool_test, thread_waits_if_its_stream_cannot_wait_for_the_other_stream) {
  for (char const* call : {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}) {
    SCOPED_TRACE(call);
    gpu::stream other{device};
    void* const block = pool.allocate(4096);
    const test::noting_work reader{device, other};
    device.fail_next(call, gpu::status::unknown);
    pool.deallocate_after(block, 4096, 256, other);
    EXPECT_TRUE(reader.has_run);
    EXPECT_EQ(pool.stats().used_blocks, 0u);
  }
}

TEST_F(device_pool_test, grows_during_a_capture_with_memory_outside_the_graph) {
  device_pool own{with(), device};
  void *small = nullptr, *large = nullptr;
  {
    const test::empty_capture graph{device, stream};
    small = own.allocate(1000);
    large = own.allocate(20 * MiB);
    EXPECT_TRUE(device.accessible(small, 1000));
    EXPECT_TRUE(device.accessible(large, 20 * MiB));
    own.deallocate(large, 20 * MiB);
    EXPECT_TRUE(device.accessible(large, 20 * MiB)) << "nothing is unmapped in a capture";
  }
  own.deallocate(own.allocate(20 * MiB), 20 * MiB);
  own.deallocate(small, 1000);
  own.check_invariants();
}

TEST_F(device_pool_test, returns_memory_kept_over_the_limit_by_a_capture_after_its_next_use) {
  device_pool limited{with({.max_cached_bytes = 4 * heap_unit}), device};
  void* block = limited.allocate(10 * heap_unit);
  {
    const test::empty_capture graph{device, stream};
    limited.deallocate(block, 10 * heap_unit);
    limited.trim(10 * heap_unit);
    EXPECT_LE(limited.stats().cached_bytes, 4 * heap_unit);
    EXPECT_EQ(limited.stats().held_bytes, 10 * heap_unit) << "nothing is unmapped in a capture";
  }
  block = limited.allocate(10 * heap_unit);
  limited.deallocate(block, 10 * heap_unit);
  EXPECT_LE(limited.stats().held_bytes, 4 * heap_unit);
  (void)limited.allocate(10 * heap_unit);
  device.fail_next("cuStreamSynchronize", gpu::status::unknown);
  limited.release();
  limited.check_invariants();
}

TEST_F(device_pool_test, keeps_a_block_in_use_for_the_capture_of_another_stream) {
  gpu::stream other{device};
  void* const block = pool.allocate(4096);
  const test::warning_recorder recorder;
  {
    const test::empty_capture graph{device, other};
    pool.deallocate_after(block, 4096, 256, other);
  }
  EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(pool.stats().used_blocks, 1u);
  EXPECT_NE(pool.allocate(4096), block);
  pool.check_invariants();
}

TEST_F(device_pool_test, thread_waits_for_the_other_stream_if_its_own_stream_captures) {
  gpu::stream other{device};
  void* const block = pool.allocate(4096);
  const test::noting_work reader{device, other};
  const test::empty_capture graph{device, stream};
  pool.deallocate_after(block, 4096, 256, other);
  EXPECT_TRUE(reader.has_run);
  EXPECT_EQ(pool.stats().used_blocks, 0u);
}

// ---- running out and failing ------------------------------------------------------------------------------

TEST_F(device_pool_test, refuses_a_block_larger_than_the_free_memory_with_numbers) {
  device_pool named{with({.name = "gradients"}), device};
  void* const block = allocate_written(named, 10 * heap_unit);
  const out_of_memory refusal = test::caught<out_of_memory>([&] { (void)named.allocate(23 * heap_unit); });
  EXPECT_STREQ(refusal.report().resource, "gradients");
  EXPECT_EQ(refusal.report().requested_bytes, 23 * heap_unit);
  EXPECT_EQ(refusal.report().used_bytes, 10 * heap_unit);
  EXPECT_EQ(refusal.report().largest_bytes, 22 * heap_unit);
  EXPECT_NE(std::string{refusal.what()}.find("the device memory is exhausted"), std::string::npos);
  named.check_invariants();
  EXPECT_NE(named.allocate(22 * heap_unit), nullptr) << "as much as the message says";
  named.deallocate(block, 10 * heap_unit);
}

TEST_F(device_pool_test, refuses_an_impossible_size_without_returning_idle_memory) {
  pool.deallocate(pool.allocate(4 * heap_unit), 4 * heap_unit);
  const std::size_t created = device.count("cuMemCreate");
  for (std::size_t bytes : {std::numeric_limits<std::size_t>::max(),
                            std::numeric_limits<std::size_t>::max() / 2 + 1, 1024 * GiB}) {
    EXPECT_THROW((void)pool.allocate(bytes, 512), out_of_memory);
    EXPECT_THROW((void)pool.allocate(bytes), out_of_memory);
  }
  EXPECT_EQ(device.count("cuMemCreate"), created);
  EXPECT_EQ(pool.stats().allocations, 1u);
  pool.check_invariants();
}

TEST_F(device_pool_test, respects_the_limit_of_the_device) {
  device.budget(0).set_limit(10 * heap_unit);
  void* const block = allocate_written(pool, 10 * heap_unit);
  const out_of_memory refusal = test::caught<out_of_memory>([&] { (void)pool.allocate(heap_unit); });
  EXPECT_NE(std::string{refusal.what()}.find("the limit of its device is reached"), std::string::npos);
  pool.deallocate(block, 10 * heap_unit);
  EXPECT_NE(pool.allocate(heap_unit), nullptr);
}

TEST_F(device_pool_test, uses_other_addresses_if_memory_without_access_stays_mapped) {
  for (std::size_t n = 0; n < 4; ++n) {
    SCOPED_TRACE(n);
    device_pool some{with(), device};
    device.fail_next("cuMemSetAccess", gpu::status::unknown);
    device.fail_in("cuMemUnmap", device.count("cuMemUnmap") + n, gpu::status::unknown);
    EXPECT_THROW((void)some.allocate(4 * heap_unit), cuda_error);
    some.check_invariants();
    void* const block = allocate_written(some, 4 * heap_unit);
    EXPECT_EQ(some.stats().held_bytes, 4 * heap_unit);
    EXPECT_EQ(device.physical_bytes(), 4 * heap_unit);
    some.deallocate(block, 4 * heap_unit);
    some.check_invariants();
    some.release();
    EXPECT_EQ(device.mapped_bytes(), 0u);
    EXPECT_EQ(device.physical_bytes(), 0u);
  }
}

TEST_F(device_pool_test, null_name_falls_back_to_the_default_name) {
  const device_pool unnamed{with({.name = nullptr}), device};
  EXPECT_STREQ(unnamed.name(), "device_pool");
  EXPECT_STREQ(unnamed.stats().name, "device_pool");
  EXPECT_THROW((device_pool{{.stream = gpu::per_thread_stream, .name = nullptr}, device}),
               std::invalid_argument);
}

TEST_F(device_pool_test, deallocation_allocates_no_record) {
  recording_resource bookkeeping;
  device_pool_options options = with();
  options.bookkeeping = &bookkeeping;
  device_pool noting{options, device};
  std::vector<std::vector<void*>> blocks;
  for (std::size_t bytes : {500u, 5000u, 50'000u}) blocks.push_back(allocate_blocks(noting, 100, bytes));
  void* const large = noting.allocate(10 * MiB);
  const std::size_t calls = bookkeeping.calls;
  std::size_t i = 0;
  for (std::size_t bytes : {500u, 5000u, 50'000u}) deallocate_blocks(noting, blocks[i++], bytes);
  noting.deallocate(large, 10 * MiB);
  (void)noting.trim(2 * heap_unit);
  noting.clear();
  EXPECT_EQ(bookkeeping.calls, calls);
}

TEST_F(device_pool_test, every_failed_record_allocation_is_harmless) {
  for (std::size_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 1000u);
    recording_resource bookkeeping;
    bookkeeping.fail_from = n;
    bool served = true;
    try {
      device_pool_options options = with();
      options.bookkeeping = &bookkeeping;
      device_pool noting{options, device};
      std::vector<std::pair<void*, std::size_t>> live;
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t bytes = i % 10 == 0 ? 8 * MiB : 1000 * (i % 7);
        try {
          live.emplace_back(noting.allocate(bytes), bytes);
        } catch (std::bad_alloc const&) {
          served = false;
        }
        noting.check_invariants();
        EXPECT_EQ(noting.stats().held_bytes, device.physical_bytes());
      }
      for (auto const& [block, bytes] : live) noting.deallocate(block, bytes);
    } catch (std::bad_alloc const&) {
      served = false;  // the constructor
    }
    EXPECT_EQ(device.physical_bytes(), 0u);
    if (bookkeeping.calls <= n) {
      EXPECT_TRUE(served);
      return;
    }
  }
}

// ---- misuse -----------------------------------------------------------------------------------------------

TEST_F(device_pool_test, reports_bad_deallocations_and_changes_nothing) {
  void* const small = pool.allocate(4096);
  void* const large = pool.allocate(10 * MiB);
  int foreign = 0;
  const test::violation_recorder recorder;
  std::size_t reported = 0;
  const auto report = [&](void* block, std::size_t bytes) {
    pool.deallocate(block, bytes);
    EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), ++reported) << bytes;
  };
  report(large, 11 * MiB);
  report(static_cast<char*>(large) + 256, 10 * MiB);
  report(&foreign, 10 * MiB);
  report(large, std::numeric_limits<std::size_t>::max() - 99);
  report(small, 5000);
  report(static_cast<char*>(small) + 256, 256);
  report(static_cast<char*>(small) + 4096, 4096);  // of the same slab, but never allocated
  report(&foreign, 256);
  EXPECT_EQ(pool.stats().used_blocks, 2u);
  pool.deallocate(small, 4096);
  pool.deallocate(large, 10 * MiB);
  report(small, 4096);  // its slab has no block in use
  report(large, 10 * MiB);
  EXPECT_EQ(pool.stats().used_blocks, 0u);
  pool.check_invariants();
}

// ---- chunks of an upstream --------------------------------------------------------------------------------

struct device_pool_chunks : device_pools_of_a_stream {
  test::made_up_memory nowhere;
  recording_resource upstream{&nowhere};

  [[nodiscard]] device_pool_options on_upstream(device_pool_options options = {}) {
    options.upstream = &upstream;
    return with(options);
  }
};

TEST_F(device_pool_chunks, grow_with_the_pool_and_serve_small_and_large_blocks) {
  device_pool pool{on_upstream(), device};
  const std::vector<void*> small = allocate_blocks(pool, 100, 4096);
  EXPECT_EQ(upstream.outstanding, 2 * MiB);
  std::vector<void*> large = allocate_blocks(pool, 30, 2 * MiB);
  EXPECT_LE(upstream.calls, 14u);
  EXPECT_LE(upstream.outstanding, 80 * MiB);
  EXPECT_EQ(pool.stats().held_bytes, upstream.outstanding);
  EXPECT_EQ(pool.upstream_resource(), &upstream);
  deallocate_blocks(pool, small, 4096);
  deallocate_blocks(pool, large, 2 * MiB);
  const std::size_t held = upstream.outstanding;
  EXPECT_EQ(pool.trim(), held);
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(device.mapped_bytes(), 0u);
}

TEST_F(device_pool_chunks, serve_blocks_at_any_alignment_of_the_upstream) {
  device_arena arena{{.reserve = 32 * MiB}, gpu::virtual_memory_options{.stream = stream}, device};
  (void)arena.allocate(256, 256);
  device_pool pool{{.stream = stream, .upstream = &arena}, device};
  for (int i = 0; i < 2; ++i) deallocate_blocks(pool, {allocate_written(pool, 2 * MiB)}, 2 * MiB);
  void* const first = allocate_written(pool, 2 * MiB);
  void* const second = allocate_written(pool, 8 * MiB);
  EXPECT_EQ(pool.stats().held_bytes, 10 * MiB);
  deallocate_blocks(pool, {first}, 2 * MiB);
  deallocate_blocks(pool, {second}, 8 * MiB);
}

TEST_F(device_pool_chunks, are_returned_when_entirely_free) {
  device_pool pool{on_upstream(), device};
  void* const first = pool.allocate(3 * MiB);
  void* const second = pool.allocate(5 * MiB);
  pool.deallocate(first, 3 * MiB);
  void* const live = pool.allocate(2 * MiB);
  pool.deallocate(second, 5 * MiB);
  EXPECT_EQ(pool.stats().cached_bytes, 5 * MiB);
  EXPECT_EQ(pool.stats().stranded_bytes, 1 * MiB);
  EXPECT_EQ(pool.trim(), 5 * MiB);
  EXPECT_EQ(upstream.outstanding, 3 * MiB);
  deallocate_blocks(pool, {live}, 2 * MiB);
}

TEST_F(device_pool_chunks, are_returned_to_an_exhausted_upstream_before_a_retry) {
  limit_resource budget{&upstream, 8 * MiB};
  device_pool pool{{.stream = stream, .upstream = &budget}, device};
  deallocate_blocks(pool, allocate_blocks(pool, 3, 2 * MiB), 2 * MiB);
  void* const block = pool.allocate(7 * MiB);
  EXPECT_EQ(pool.stats().held_bytes, 7 * MiB);
  const auto refused = budget.stats().refused;
  EXPECT_THROW((void)pool.allocate(2 * MiB), out_of_memory);
  EXPECT_GT(budget.stats().refused, refused);
  pool.check_invariants();
  deallocate_blocks(pool, {block}, 7 * MiB);
}

TEST_F(device_pool_chunks, replace_no_mapped_memory) {
  device_pool pool{with(), device};
  const std::vector<void*> live = allocate_blocks(pool, 1, 3 * MiB);
  device.fail_next("cuMemCreate", gpu::status::not_supported);
  EXPECT_THROW((void)pool.allocate(9 * MiB), cuda_error);
  EXPECT_GT(pool.largest_request(), 9 * MiB);
  deallocate_blocks(pool, live, 3 * MiB);
}

}  // namespace
}  // namespace tidemark::test
