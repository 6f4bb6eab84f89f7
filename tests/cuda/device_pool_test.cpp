// SPDX-License-Identifier: Apache-2.0
// Strategy: a pool on addresses that fault when touched, whose upstream compares each piece it gets
// back; classes by their definition; every failing call of the upstream, of the records and of the driver.
#include <tidemark/cuda/resources/device_pool.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/resources/detail/device_classes.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark {
namespace {

using classes = gpu::detail::device_classes;
using test::fake_device;
using test::recording_resource;

// ---- classes ----------------------------------------------------------------------------------------------

TEST(device_classes, are_multiples_of_256_and_from_2_kib_on_four_for_each_power_of_two) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 256; bytes <= 2 * KiB; bytes += 256) sizes.push_back(bytes);
  for (std::size_t power = 2 * KiB; power < classes::max_bytes; power *= 2) {
    for (std::size_t step = 1; step <= 4; ++step) sizes.push_back(power + step * power / 4);
  }
  ASSERT_EQ(sizes.size(), gpu::detail::max_device_classes_count);
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(classes::bytes(i), sizes[i]);
}

TEST(device_classes, a_request_gets_the_least_class_that_is_large_enough) {
  EXPECT_EQ(classes::index_of(0), 0u);
  std::size_t last = 0;
  for (std::size_t i = 0; i < gpu::detail::max_device_classes_count; ++i) {
    EXPECT_EQ(classes::index_of(last + 1), i) << last + 1;
    EXPECT_EQ(classes::index_of(classes::bytes(i)), i) << classes::bytes(i);
    last = classes::bytes(i);
  }
}

// ---- blocks -----------------------------------------------------------------------------------------------

struct device_pool_test : ::testing::Test {
  fake_device device;
  gpu::stream stream{device};
  test::made_up_memory nowhere;
  recording_resource upstream{&nowhere};

  [[nodiscard]] device_pool_options with(device_pool_options options) {
    options.stream = stream;
    options.upstream = &upstream;
    return options;
  }
  static std::vector<void*> take(device_pool& pool, std::size_t blocks, std::size_t bytes) {
    std::vector<void*> taken(blocks);
    for (void*& block : taken) block = pool.allocate(bytes);
    return taken;
  }
  static void give(device_pool& pool, std::vector<void*> const& blocks, std::size_t bytes) {
    for (void* block : blocks) pool.deallocate(block, bytes);
    pool.check_invariants();
  }
};

TEST_F(device_pool_test, reuses_the_last_freed_block_first) {
  device_pool pool{with({}), device};
  const std::vector<void*> blocks = take(pool, 3, 3000);
  give(pool, blocks, 3000);
  EXPECT_EQ(pool.allocate(2561), blocks[2]) << "of the same class, which is 3 KiB";
  EXPECT_EQ(pool.allocate(3072), blocks[1]);
  EXPECT_NE(pool.allocate(2560), blocks[0]);
  EXPECT_NE(pool.allocate(3073), blocks[0]);
}

TEST_F(device_pool_test, a_slab_is_about_as_large_as_configured_and_allocated_from_its_beginning) {
  device_pool pool{with({.slab_bytes = 64 * KiB}), device};
  void* const first = pool.allocate(4096);
  EXPECT_EQ(upstream.outstanding, 64 * KiB);
  for (std::size_t i = 1; i < 16; ++i) EXPECT_EQ(pool.allocate(4096), static_cast<char*>(first) + i * 4096);
  EXPECT_EQ(upstream.calls, 1u);
  (void)pool.allocate(4096);
  EXPECT_EQ(upstream.calls, 2u);
  (void)pool.allocate(100 * KiB);  // a slab of one block of 112 KiB
  EXPECT_EQ(upstream.outstanding, 2 * 64 * KiB + 112 * KiB);
}

TEST_F(device_pool_test, larger_requests_and_larger_alignments_go_to_the_upstream_and_straight_back) {
  device_pool pool{with({.largest_pooled_bytes = 1 * MiB}), device};
  void* const large = pool.allocate(1 * MiB + 1);
  void* const coarse = pool.allocate(100, 512);
  EXPECT_EQ(upstream.outstanding, 1 * MiB + 101);
  pool.deallocate(large, 1 * MiB + 1);
  pool.deallocate(coarse, 100, 512);
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(pool.stats().misses, 2u);
  EXPECT_EQ(pool.stats().hits, 0u);
  pool.check_invariants();
}

TEST_F(device_pool_test, blocks_of_zero_bytes_are_distinct_and_null_is_nothing) {
  device_pool pool{with({}), device};
  const std::vector<void*> blocks = take(pool, 3, 0);
  EXPECT_EQ((std::set<void*>{blocks.begin(), blocks.end()}).size(), 3u);
  give(pool, blocks, 0);
  pool.deallocate(nullptr, 0);
  pool.deallocate_after(nullptr, 0, 256, gpu::event_handle{});
  pool.deallocate_after(nullptr, 0, 256, gpu::stream_handle{});
  EXPECT_EQ(pool.stats().deallocations, 3u);
}

TEST_F(device_pool_test, without_an_upstream_it_has_a_pool_of_the_drivers_in_the_order_of_its_stream) {
  {
    device_pool pool{{.stream = stream, .slab_bytes = 64 * KiB}, device};
    give(pool, take(pool, 20, 4096), 4096);
    EXPECT_EQ(device.count("cuMemAllocFromPoolAsync"), 2u);
    EXPECT_EQ(device.outstanding, 128 * KiB);
    EXPECT_EQ(pool.trim(), 128 * KiB);
    stream.synchronize();
    gpu::memory_info info;
    EXPECT_EQ(device.memory(info), gpu::status::success);
    EXPECT_EQ(info.free_bytes, info.total_bytes) << "what it returns stays in no pool of the driver's";
  }
  EXPECT_EQ(device.count("cuMemFreeAsync"), 2u);
  EXPECT_EQ(device.count("cuMemAlloc") + device.count("cuMemFree"), 0u);
}

TEST_F(device_pool_test, classes_beyond_16_gib_are_refused_and_16_gib_are_not) {
  EXPECT_THROW((device_pool{with({.largest_pooled_bytes = 16 * GiB + 1}), device}), std::invalid_argument);
  device_pool pool{with({.largest_pooled_bytes = 16 * GiB}), device};
  EXPECT_EQ(pool.options().largest_pooled_bytes, 16 * GiB);
  give(pool, {pool.allocate(16 * GiB)}, 16 * GiB);
  const device_pool odd{with({.largest_pooled_bytes = 5000}), device};
  EXPECT_EQ(odd.options().largest_pooled_bytes, 5 * KiB) << "a whole class";
}

// ---- limits and trims -------------------------------------------------------------------------------------

TEST_F(device_pool_test, free_blocks_beyond_the_limit_go_back) {
  device_pool pool{with({.slab_bytes = 64 * KiB, .max_cached_bytes = 256 * KiB}), device};
  const std::vector<void*> blocks = take(pool, 128, 4096);
  EXPECT_EQ(upstream.outstanding, 512 * KiB);
  for (void* block : blocks) {
    pool.deallocate(block, 4096);
    ASSERT_LE(pool.stats().cached_bytes, 256 * KiB);
  }
  EXPECT_LE(upstream.outstanding, 256 * KiB);
  EXPECT_LE(pool.stats().peak_cached_bytes, 256 * KiB);
  pool.check_invariants();
}

TEST_F(device_pool_test, trim_gives_back_wholly_free_slabs_and_sets_the_rest_aside) {
  device_pool pool{with({.slab_bytes = 64 * KiB}), device};
  std::vector<void*> blocks = take(pool, 48, 4096);  // three slabs
  void* const live = blocks[20];                     // in the second
  blocks.erase(blocks.begin() + 20);
  give(pool, blocks, 4096);
  EXPECT_EQ(pool.trim(), 128 * KiB);
  pool.check_invariants();
  const pool_stats stats = pool.stats();
  EXPECT_EQ(stats.cached_bytes, 0u);
  EXPECT_EQ(stats.stranded_bytes, 60 * KiB);
  EXPECT_EQ(stats.held_bytes, 64 * KiB);
  EXPECT_EQ(upstream.outstanding, 64 * KiB);
  give(pool, {live}, 4096);
  EXPECT_EQ(pool.trim(), 64 * KiB);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(device_pool_test, trim_stops_at_its_target) {
  device_pool pool{with({.slab_bytes = 64 * KiB}), device};
  give(pool, take(pool, 64, 4096), 4096);
  EXPECT_EQ(pool.trim(130 * KiB), 128 * KiB);
  EXPECT_EQ(pool.stats().cached_bytes, 128 * KiB);
  EXPECT_EQ(pool.stats().stranded_bytes, 0u);
  pool.check_invariants();
}

TEST_F(device_pool_test, reuses_blocks_set_aside_before_it_calls_the_upstream) {
  device_pool pool{with({.slab_bytes = 64 * KiB}), device};
  const std::vector<void*> blocks = take(pool, 16, 4096);
  give(pool, {blocks.begin() + 1, blocks.end()}, 4096);
  EXPECT_EQ(pool.trim(), 0u);
  EXPECT_EQ(pool.stats().stranded_bytes, 60 * KiB);
  const std::size_t calls = upstream.calls;
  const std::uint64_t hits = pool.stats().hits;
  const std::vector<void*> again = take(pool, 15, 4096);
  EXPECT_EQ(upstream.calls, calls);
  EXPECT_EQ(pool.stats().hits, hits + 15);
  EXPECT_EQ(pool.stats().stranded_bytes, 0u);
  EXPECT_EQ((std::set<void*>{again.begin(), again.end()}),
            (std::set<void*>{blocks.begin() + 1, blocks.end()}));
  pool.check_invariants();
}

TEST_F(device_pool_test, slabs_that_the_limit_had_to_leave_go_when_half_of_what_lived_is_free) {
  device_pool pool{with({.slab_bytes = 64 * KiB, .max_cached_bytes = 256 * KiB}), device};
  const std::vector<void*> blocks = take(pool, 256, 4096);  // 16 slabs
  for (std::size_t i = 0; i < 256; ++i) {
    if (i % 16 != 0) pool.deallocate(blocks[i], 4096);  // one of each slab lives
  }
  EXPECT_EQ(upstream.outstanding, 1 * MiB);
  EXPECT_GT(pool.stats().stranded_bytes, 512 * KiB);
  (void)pool.trim();
  for (std::size_t i = 0; i < 256; i += 16) pool.deallocate(blocks[i], 4096);
  EXPECT_LE(pool.stats().peak_cached_bytes, 256 * KiB);
  EXPECT_LE(upstream.outstanding, 512 * KiB) << "although the 64 KiB freed last are far below the limit";
  pool.check_invariants();
}

// ---- statistics -------------------------------------------------------------------------------------------

TEST_F(device_pool_test, counts_as_every_pool_does) {
  device_pool pool{with({.slab_bytes = 64 * KiB, .name = "blocks"}), device};
  const std::vector<void*> blocks = take(pool, 3, 3000);
  pool.deallocate(blocks[0], 3000);
  void* const large = pool.allocate(100 * MiB);
  const pool_stats stats = pool.stats();
  EXPECT_STREQ(stats.name, "blocks");
  EXPECT_EQ(stats.allocations, 4u);
  EXPECT_EQ(stats.deallocations, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.used_blocks, 3u);
  EXPECT_EQ(stats.requested_bytes, 2 * 3000 + 100 * MiB);
  EXPECT_EQ(stats.used_bytes, 2 * 3 * KiB + 100 * MiB);
  EXPECT_EQ(stats.used_bytes, stats.used_bytes);
  EXPECT_EQ(stats.cached_bytes, 19 * 3 * KiB);  // of a slab of 21 blocks
  EXPECT_EQ(stats.held_bytes, stats.used_bytes + stats.cached_bytes);
  EXPECT_EQ(stats.held_bytes, upstream.outstanding);
  EXPECT_EQ(stats.peak_cached_bytes, 20 * 3 * KiB);
  pool.reset_stats();
  EXPECT_EQ(pool.stats().allocations, 0u);
  EXPECT_EQ(pool.stats().peak_cached_bytes, 19 * 3 * KiB);
  EXPECT_EQ(pool.stats().used_blocks, 3u);
  give(pool, {blocks[1], blocks[2]}, 3000);
  give(pool, {large}, 100 * MiB);
  EXPECT_EQ(pool.stats().deallocations, 3u);
  EXPECT_EQ(pool.stats().requested_bytes, 0u);
}

// ---- other streams ----------------------------------------------------------------------------------------

TEST_F(device_pool_test, keeps_a_block_in_use_if_nothing_can_wait_for_it) {
  gpu::stream other{device};
  device_pool pool{with({}), device};
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

TEST_F(device_pool_test, deallocate_after_a_stream_lets_its_own_wait_for_what_is_there) {
  gpu::stream other{device};
  device_pool pool{with({}), device};
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

TEST_F(device_pool_test, deallocate_after_its_own_stream_makes_no_event) {
  device_pool pool{with({}), device};
  void* const block = pool.allocate(4096);
  pool.deallocate_after(block, 4096, 256, stream);
  EXPECT_EQ(device.count("cuEventCreate"), 0u);
  EXPECT_EQ(pool.stats().used_blocks, 0u);
}

TEST_F(device_pool_test, where_its_stream_cannot_wait_for_a_stream_the_thread_does) {
  for (char const* call : {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}) {
    SCOPED_TRACE(call);
    gpu::stream other{device};
    device_pool pool{with({}), device};
    void* const block = pool.allocate(4096);
    const test::noting_work reader{device, other};
    device.fail_next(call, gpu::status::unknown);
    pool.deallocate_after(block, 4096, 256, other);
    EXPECT_TRUE(reader.has_run);
    EXPECT_EQ(pool.stats().used_blocks, 0u);
  }
}

// K.6
TEST_F(device_pool_test, grows_in_a_capture_by_memory_that_is_not_the_graphs) {
  device_pool own{{.stream = stream}, device};
  gpu::graph_handle graph = nullptr;
  ASSERT_EQ(device.begin_capture(stream, gpu::capture_mode::global), gpu::status::success);
  void* const small = own.allocate(1000);
  void* const large = own.allocate(64 * MiB);
  EXPECT_TRUE(device.accessible(small, 1000));
  EXPECT_TRUE(device.accessible(large, 64 * MiB));
  own.deallocate(large, 64 * MiB);
  EXPECT_TRUE(device.accessible(large, 64 * MiB)) << "nothing is unmapped in a capture";
  ASSERT_EQ(device.end_capture(stream, graph), gpu::status::success);
  std::size_t nodes = 1;
  EXPECT_EQ(device.node_count(graph, nodes), gpu::status::success);
  EXPECT_EQ(nodes, 0u) << "nothing of the pool is in the graph";
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
  void* const after = own.allocate(64 * MiB);
  own.deallocate(after, 64 * MiB);
  own.deallocate(small, 1000);
  own.check_invariants();
}

TEST_F(device_pool_test, keeps_a_block_in_use_that_another_streams_capture_uses) {
  gpu::stream other{device};
  device_pool pool{with({}), device};
  void* const block = pool.allocate(4096);
  const test::warning_recorder recorder;
  ASSERT_EQ(device.begin_capture(other, gpu::capture_mode::global), gpu::status::success);
  pool.deallocate_after(block, 4096, 256, other);
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(other, graph), gpu::status::success) << "the capture is as it was";
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
  EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(pool.stats().used_blocks, 1u);
  EXPECT_NE(pool.allocate(4096), block);
  pool.check_invariants();
}

TEST_F(device_pool_test, while_only_its_own_stream_captures_the_thread_waits_for_the_other) {
  gpu::stream other{device};
  device_pool pool{with({}), device};
  void* const block = pool.allocate(4096);
  const test::noting_work reader{device, other};
  ASSERT_EQ(device.begin_capture(stream, gpu::capture_mode::global), gpu::status::success);
  pool.deallocate_after(block, 4096, 256, other);
  EXPECT_TRUE(reader.has_run);
  EXPECT_EQ(pool.stats().used_blocks, 0u);
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(stream, graph), gpu::status::success);
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
}

// ---- running out and failing ------------------------------------------------------------------------------

TEST_F(device_pool_test, returns_free_slabs_to_an_exhausted_upstream_and_tries_once_more) {
  limit_resource budget{256 * KiB, &upstream};
  device_pool pool{{.stream = stream, .slab_bytes = 64 * KiB, .upstream = &budget}, device};
  give(pool, take(pool, 64, 4096), 4096);
  void* const block = pool.allocate(40 * KiB);
  EXPECT_EQ(budget.stats().refused, 1u);
  EXPECT_EQ(pool.stats().held_bytes, 40 * KiB);
  void* const large = pool.allocate(200 * KiB, 512);
  EXPECT_THROW((void)pool.allocate(60 * KiB), out_of_memory);
  EXPECT_EQ(budget.stats().refused, 2u) << "nothing was free, so that to ask again is of no use";
  pool.check_invariants();
  give(pool, {block}, 40 * KiB);
  pool.deallocate(large, 200 * KiB, 512);
}

TEST_F(device_pool_test, a_size_that_nothing_can_have_is_refused_in_numbers_and_nothing_goes_back) {
  device_pool pool{with({.slab_bytes = 4096, .name = "gradients"}), device};
  void* const block = pool.allocate(2048);
  const pool_stats before = pool.stats();
  const out_of_memory refusal =
      test::caught<out_of_memory>([&] { (void)pool.allocate(std::numeric_limits<std::size_t>::max(), 512); });
  EXPECT_STREQ(refusal.report().resource, "gradients");
  EXPECT_EQ(refusal.report().requested_bytes, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(refusal.report().alignment, 512u);
  EXPECT_EQ(refusal.report().used_bytes, 2048u);
  EXPECT_EQ(refusal.report().committed_bytes, 4096u);
  EXPECT_STREQ(refusal.report().because, "");
  EXPECT_EQ(pool.stats().allocations, before.allocations);
  EXPECT_EQ(pool.stats().misses, before.misses);
  EXPECT_EQ(pool.stats().cached_bytes, before.cached_bytes) << "the free block stays where it is";
  pool.check_invariants();
  pool.deallocate(block, 2048);
}

TEST_F(device_pool_test, a_slab_that_nothing_can_have_is_refused_in_numbers_and_says_why) {
  constexpr std::size_t endless = std::numeric_limits<std::size_t>::max();
  device_pool pool{with({.slab_bytes = endless, .max_cached_bytes = endless, .name = "gradients"}), device};
  const std::size_t calls = upstream.calls;
  const out_of_memory refusal = test::caught<out_of_memory>([&] { (void)pool.allocate(1000); });
  EXPECT_STREQ(refusal.report().resource, "gradients");
  EXPECT_EQ(refusal.report().requested_bytes, 1000u);
  EXPECT_NE(std::string{refusal.what()}.find("slab_bytes"), std::string::npos);
  EXPECT_EQ(upstream.calls, calls);
  EXPECT_EQ(pool.stats().held_bytes, 0u);
  pool.check_invariants();
}

TEST_F(device_pool_test, without_a_name_it_has_the_one_of_the_options) {
  const device_pool pool{with({.name = nullptr}), device};
  EXPECT_STREQ(pool.name(), "device_pool");
  EXPECT_STREQ(pool.stats().name, "device_pool");
  EXPECT_THROW((device_pool{{.largest_pooled_bytes = 17 * GiB, .name = nullptr}, device}),
               std::invalid_argument);
}

TEST_F(device_pool_test, no_deallocation_needs_memory_for_a_record) {
  recording_resource bookkeeping;
  device_pool_options options = with({.slab_bytes = 64 * KiB});
  options.bookkeeping = &bookkeeping;
  device_pool pool{options, device};
  std::vector<std::vector<void*>> blocks;
  for (std::size_t bytes : {500u, 5000u, 50'000u}) blocks.push_back(take(pool, 100, bytes));
  void* const large = pool.allocate(100 * MiB);
  const std::size_t calls = bookkeeping.calls;
  std::size_t i = 0;
  for (std::size_t bytes : {500u, 5000u, 50'000u}) give(pool, blocks[i++], bytes);
  pool.deallocate(large, 100 * MiB);
  (void)pool.trim(100 * KiB);
  pool.clear();
  EXPECT_EQ(bookkeeping.calls, calls);
}

TEST_F(device_pool_test, each_failing_record_in_turn_is_harmless) {
  for (std::size_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 1000u);
    recording_resource bookkeeping;
    bookkeeping.fail_from = n;
    bool served = true;
    try {
      device_pool_options options = with({.slab_bytes = 16 * KiB});
      options.bookkeeping = &bookkeeping;
      device_pool pool{options, device};
      std::vector<std::pair<void*, std::size_t>> live;
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t bytes = i % 10 == 0 ? 40 * MiB : 1000 * (i % 7);
        try {
          live.emplace_back(pool.allocate(bytes), bytes);
        } catch (std::bad_alloc const&) {
          served = false;
        }
        pool.check_invariants();
        EXPECT_EQ(pool.stats().held_bytes, upstream.outstanding);
      }
      for (auto const& [block, bytes] : live) pool.deallocate(block, bytes);
    } catch (std::bad_alloc const&) {
      served = false;  // the constructor
    }
    EXPECT_EQ(upstream.outstanding, 0u);
    if (bookkeeping.calls <= n) {
      EXPECT_TRUE(served);
      return;
    }
  }
}

TEST(device_pool_failures, each_failing_call_of_the_driver_in_turn_is_harmless) {
  for (const gpu::status failure : {gpu::status::out_of_memory, gpu::status::unknown}) {
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE(::testing::Message() << "call " << n << " fails with " << static_cast<int>(failure));
      ASSERT_LT(n, 1000u);
      fake_device device;
      const gpu::stream stream{device}, other{device};
      const std::size_t failing = device.calls + n;
      device.failure = failure;
      device.fail_from = failing;
      bool served = true;
      try {
        device_pool pool{{.stream = stream, .slab_bytes = 16 * KiB, .max_cached_bytes = 64 * KiB}, device};
        std::vector<std::pair<void*, std::size_t>> live;
        for (std::size_t i = 0; i < 40; ++i) {
          const std::size_t bytes = i % 10 == 0 ? 40 * MiB : 1000 * (i % 7);
          try {
            live.emplace_back(pool.allocate(bytes), bytes);
            if (i % 5 == 3) {
              const gpu::event done{other, device};
              pool.deallocate_after(live.back().first, bytes, 256, done);
              live.pop_back();
            }
          } catch (std::bad_alloc const&) {
            served = false;
          } catch (cuda_error const&) {
            served = false;
          }
          pool.check_invariants();
        }
        for (auto const& [block, bytes] : live) pool.deallocate(block, bytes);
        EXPECT_EQ(pool.stats().used_blocks, 0u);
      } catch (std::bad_alloc const&) {
        served = false;
      } catch (cuda_error const&) {
        served = false;
      }
      EXPECT_EQ(device.outstanding, 0u);
      if (device.calls <= failing) {
        EXPECT_TRUE(served);
        break;
      }
    }
  }
}

// ---- misuse -----------------------------------------------------------------------------------------------

TEST_F(device_pool_test, level_2_reports_what_may_not_be_given_back_and_does_nothing) {
  if (check_level < 2) GTEST_SKIP() << "found at level 2";
  device_pool pool{with({}), device};
  void* const block = pool.allocate(4096);
  const test::violation_recorder recorder;
  pool.deallocate(block, 5000);
  pool.deallocate(static_cast<char*>(block) + 256, 256);
  int foreign = 0;
  pool.deallocate(&foreign, 256);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 3u);
  EXPECT_EQ(pool.stats().used_blocks, 1u);
  pool.deallocate(block, 4096);
  pool.deallocate(block, 4096);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 4u);
  EXPECT_EQ(pool.stats().used_blocks, 0u);
}

TEST_F(device_pool_test, more_blocks_of_a_class_than_there_are_are_reported_at_every_level) {
  device_pool pool{with({.slab_bytes = 4096}), device};
  void* const block = pool.allocate(4096);
  pool.deallocate(block, 4096);
  const test::violation_recorder recorder;
  pool.deallocate(block, 4096);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 1u);
  EXPECT_EQ(pool.stats().cached_bytes, 4096u);
  pool.check_invariants();
}

TEST_F(device_pool_test, a_large_block_that_is_not_its_own_is_reported_at_every_level) {
  device_pool pool{with({}), device};
  void* const large = pool.allocate(100 * MiB);
  const test::violation_recorder recorder;
  pool.deallocate(large, 101 * MiB);
  pool.deallocate(static_cast<char*>(large) + 256, 100 * MiB);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 2u);
  pool.deallocate(large, 100 * MiB);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(device_pool_test, level_2_reports_a_second_thread_unless_ownership_was_released) {
  if (check_level < 2) GTEST_SKIP() << "found at level 2";
  device_pool pool{with({}), device};
  give(pool, {pool.allocate(1000)}, 1000);
  const test::violation_recorder recorder;
  std::thread{[&] { give(pool, {pool.allocate(1000)}, 1000); }}.join();
  EXPECT_EQ(recorder.count(violation_kind::wrong_thread), 2u);
  pool.release_thread_ownership();
  std::thread{[&] { give(pool, {pool.allocate(1000)}, 1000); }}.join();
  EXPECT_EQ(recorder.count(violation_kind::wrong_thread), 2u);
}

}  // namespace
}  // namespace tidemark
