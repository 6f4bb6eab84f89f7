// SPDX-License-Identifier: Apache-2.0
// Strategy: a cache on a fake device whose memory faults when touched and whose streams run when the
// test says so. Calls of the driver are counted, and each of them is made to fail in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "recording_supply.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

struct device_cache_streams : ::testing::Test {
  fake_device device;
  gpu::stream stream{device};
  gpu::stream other{device};

  gpu::memory_pool pool{{}, device};
  gpu::async_resource driver_blocks{pool, stream, device};

  static std::vector<void*> allocate_blocks(device_cache& cache, std::size_t blocks, std::size_t bytes) {
    std::vector<void*> taken(blocks);
    for (void*& block : taken) block = cache.allocate(bytes);
    return taken;
  }
  static void deallocate_blocks(device_cache& cache, std::vector<void*> const& blocks, std::size_t bytes) {
    for (void* block : blocks) cache.deallocate(block, bytes);
    cache.check_invariants();
  }
};

/// With a cache that has no options.
struct device_cache_test : device_cache_streams {
  device_cache cache{{.stream = stream}, device};
};

// ---- by exact size ----------------------------------------------------------------------------------------

// S1.25
TEST_F(device_cache_test, repeated_step_makes_no_driver_call) {
  const auto step = [&] {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 50; ++i) blocks.push_back(cache.allocate(1000 + i % 10));
    for (std::size_t i = 0; i < 50; ++i) cache.deallocate(blocks[i], 1000 + i % 10);
  };
  step();
  EXPECT_EQ(cache.stats().misses, 50u);
  const std::size_t calls = device.counts_total();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(device.counts_total(), calls);
  EXPECT_EQ(cache.stats().hits, 500u);
}

// ---- limits -----------------------------------------------------------------------------------------------

// S1.28
TEST_F(device_cache_test, workload_of_many_shapes_stays_within_a_constant_bound) {
  constexpr std::size_t limit = 8 * MiB, max_live = 4 * MiB;
  gpu::device_resource blocks{
      device};  // of which the device holds the bytes that were requested, and no more
  device_cache limited{{.stream = stream, .max_cached_bytes = limit, .upstream = &blocks}, device};
  std::mt19937 random{3};
  std::vector<std::pair<void*, std::size_t>> live;
  std::size_t live_bytes = 0, most_in_first_half = 0, most_in_second_half = 0;
  constexpr int steps = 8'000;
  for (int i = 0; i < steps; ++i) {
    const std::size_t bytes = 1 + random() % 60'000;  // hardly any size is requested twice
    while (live_bytes + bytes > max_live) {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 4 == 0) limited.deallocate(live.back().first, live.back().second, 256, other);
      else limited.deallocate(live.back().first, live.back().second);
      live_bytes -= live.back().second;
      live.pop_back();
    }
    live.emplace_back(limited.allocate(bytes), bytes);
    live_bytes += bytes;
    if (i % 64 == 0) device.run(other);
    const reuse_cache_stats now = limited.stats();
    ASSERT_LE(now.cached_bytes, limit);
    ASSERT_EQ(device.outstanding, live_bytes + now.cached_bytes + now.pending_bytes);
    std::size_t& most = i < steps / 2 ? most_in_first_half : most_in_second_half;
    most = std::max(most, device.outstanding);
  }
  EXPECT_GT(limited.stats().peak_cached_bytes, limit - 60'000) << "a limit that is not reached shows nothing";
  EXPECT_LE(most_in_second_half, most_in_first_half + most_in_first_half / 20) << "the held memory grows";
  for (auto const& [block, bytes] : live) limited.deallocate(block, bytes);
  limited.check_invariants();
}

// S1.26
TEST_F(device_cache_test, evicts_the_oldest_of_65_blocks_of_one_size_to_the_driver) {
  device_cache exact{{.stream = stream, .upstream = &driver_blocks}, device};
  const std::vector<void*> blocks = allocate_blocks(exact, 65, 4096);
  deallocate_blocks(exact, {blocks.begin(), blocks.end() - 1}, 4096);
  EXPECT_EQ(device.count("cuMemFreeAsync"), 0u);
  exact.deallocate(blocks[64], 4096);
  EXPECT_EQ(device.count("cuMemFreeAsync"), 1u);
  EXPECT_FALSE(device.accessible(blocks[0], 4096));
  EXPECT_EQ(exact.allocate(4096), blocks[1]);
  exact.deallocate(blocks[1], 4096);
}

/// A setting of the environment, as long as it lives.
class setting {
 public:
  explicit setting(char const* text) { setenv(name, text, 1); }
  setting(setting const&) = delete;
  setting& operator=(setting const&) = delete;
  ~setting() { unsetenv(name); }
  static constexpr char const* name = "TIDEMARK_DEVICE_CACHE_MIB";
};

// S1.27
TEST_F(device_cache_test, defaults_to_1_gib_and_64_blocks_per_size) {
  EXPECT_EQ(cache.options().max_cached_bytes, 1 * GiB);
  EXPECT_EQ(cache.options().max_blocks_per_size, 64u);
}

// S1.27
TEST_F(device_cache_test, environment_sets_the_limit_in_mib_and_an_option_overrides_it) {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max(), by_default = 1 * GiB;
  for (auto const& [text, limit] : {std::pair{"3", 3 * MiB},
                                    {"99999999999999999999", all},
                                    {"1GiB", by_default},
                                    {"-1", by_default},
                                    {"lots", by_default},
                                    {"1.5", by_default}}) {
    SCOPED_TRACE(text);
    const setting set{text};
    const test::warning_recorder recorder;
    const device_cache by_environment{{.stream = stream}, device};
    EXPECT_EQ(by_environment.options().max_cached_bytes, limit);
    const device_cache told{{.stream = stream, .max_cached_bytes = 5}, device};
    EXPECT_EQ(told.options().max_cached_bytes, 5u);
    ASSERT_EQ(recorder.count(warning_kind::refused_setting), limit == by_default ? 1u : 0u);
    if (limit != by_default) continue;
    EXPECT_EQ(recorder.reports()[0].resource, setting::name);
    EXPECT_NE(recorder.reports()[0].message.find(text), std::string::npos);
  }
}

TEST_F(device_cache_test, forced_collect_returns_idle_memory_to_the_device) {
  deallocate_blocks(cache, allocate_blocks(cache, 3, 1 * MiB), 1 * MiB);
  EXPECT_EQ(cache.collect(), 3 * MiB);
  EXPECT_EQ(device.count("cuStreamSynchronize"), 0u);
  EXPECT_GE(device.physical_bytes(), 3 * MiB) << "the stream may still use it";
  EXPECT_EQ(cache.collect(true), 0u);
  EXPECT_EQ(device.physical_bytes(), 0u);
}

// S1.28
TEST_F(device_cache_test, evicted_blocks_serve_other_sizes) {
  device_cache limited{{.stream = stream, .max_cached_bytes = 1}, device};
  limited.deallocate(limited.allocate(30 * MiB), 30 * MiB);
  const std::size_t created = device.count("cuMemCreate");
  for (std::size_t mib = 2; mib < 30; ++mib) limited.deallocate(limited.allocate(mib * MiB), mib * MiB);
  EXPECT_EQ(device.count("cuMemCreate"), created);
}

// ---- other streams ----------------------------------------------------------------------------------------

// S1.36
TEST_F(device_cache_test, reuses_blocks_of_its_own_stream_immediately) {
  void* const block = cache.allocate(4096);
  cache.deallocate(block, 4096, 256, stream);
  EXPECT_EQ(cache.allocate(4096), block);
  EXPECT_EQ(device.count("cuEventCreate"), 0u);
  cache.deallocate(block, 4096);
}

// S1.36
TEST_F(device_cache_test, reuses_blocks_of_another_stream_only_after_their_work) {
  void* const block = cache.allocate(4096);
  cache.deallocate(block, 4096, 256, other);
  EXPECT_EQ(cache.stats().pending_bytes, 4096u);
  void* const meanwhile = cache.allocate(4096);
  EXPECT_NE(meanwhile, block);
  device.run(other);
  EXPECT_EQ(cache.allocate(4096), block);
  EXPECT_EQ(device.count("cuStreamWaitEvent"), 0u) << "its stream does not wait";
  EXPECT_EQ(device.count("cuEventSynchronize") + device.count("cuStreamSynchronize"), 0u)
      << "nor does the host";
  deallocate_blocks(cache, {block, meanwhile}, 4096);
}

TEST_F(device_cache_test, reuses_events) {
  for (int i = 0; i < 100; ++i) {
    const std::vector<void*> blocks = allocate_blocks(cache, 3, 4096);
    for (void* block : blocks) cache.deallocate(block, 4096, 256, other);
    device.run(other);
  }
  EXPECT_LE(device.count("cuEventCreate"), 6u);
  EXPECT_EQ(device.count("cuEventRecord"), 300u);
}

TEST_F(device_cache_test, request_queries_each_stream_with_pending_blocks_once) {
  const std::vector<void*> blocks = allocate_blocks(cache, 100, 4096);
  for (void* block : blocks) cache.deallocate(block, 4096, 256, other);
  void* const warm = cache.allocate(4096);  // the pool's memory exists from now on
  cache.deallocate(warm, 4096);
  std::vector<void*> taken{cache.allocate(4096)};
  const std::size_t queries = device.count("cuEventQuery"), calls = device.counts_total();
  taken.push_back(cache.allocate(4096));
  EXPECT_EQ(device.count("cuEventQuery"), queries + 1);
  EXPECT_LE(device.counts_total(), calls + 10) << "an allocation among them";
  for (int streams = 2; streams <= 3; ++streams) {
    const gpu::stream another{device};
    cache.deallocate(taken.back(), 4096, 256, another);
    const std::size_t before = device.count("cuEventQuery");
    taken.back() = cache.allocate(4096);
    EXPECT_EQ(device.count("cuEventQuery"), before + static_cast<std::size_t>(streams));
  }
  deallocate_blocks(cache, taken, 4096);
}

TEST_F(device_cache_test, events_of_different_streams_have_different_orders) {
  gpu::detail::event_stock stock{device, 0, stream, "cache", std::pmr::new_delete_resource()};
  std::vector<reuse_fence> fences;
  for (gpu::stream_handle on : {other.get(), other.get(), gpu::stream_handle{}, stream.get()}) {
    std::optional<reuse_fence> fence = stock.record(on);
    ASSERT_TRUE(fence);
    fences.push_back(std::move(*fence));
  }
  EXPECT_EQ(fences[0].order(), fences[1].order());
  EXPECT_NE(fences[0].order(), fences[2].order());
  EXPECT_NE(fences[2].order(), nullptr) << "order of the default stream";
  EXPECT_NE(fences[2].order(), fences[3].order());
}

TEST_F(device_cache_test, thread_waits_for_the_stream_if_no_event_can_be_made) {
  for (char const* call : {"cuEventCreate", "cuEventRecord"}) {
    SCOPED_TRACE(call);
    void* const block = cache.allocate(4096);
    const std::size_t waits = device.count("cuStreamSynchronize");
    device.fail_next(call);
    cache.deallocate(block, 4096, 256, other);
    EXPECT_EQ(device.count("cuStreamSynchronize"), waits + 1);
    EXPECT_EQ(cache.stats().pending_bytes, 0u);
    EXPECT_EQ(cache.allocate(4096), block);
    cache.deallocate(block, 4096);
  }
}

TEST_F(device_cache_test, event_stock_returns_no_fence_and_leaks_no_event_without_host_memory) {
  test::recording_resource bookkeeping;
  gpu::detail::event_stock stock{device, 0, stream, "cache", &bookkeeping};
  bookkeeping.fail_from = bookkeeping.calls;
  bookkeeping.fail_count = test::supply::never;
  std::vector<reuse_fence> fences;
  std::optional<reuse_fence> fence;
  while ((fence = stock.record(other)) && fences.size() < 1000) fences.push_back(std::move(*fence));
  EXPECT_EQ(stock.size(), fences.size());
  EXPECT_EQ(device.count("cuEventDestroy"), 1u);
  EXPECT_LT(fences.size(), 1000u) << "the records need no memory at all";
  fences.clear();
  EXPECT_TRUE(stock.record(other)) << "existing events are reused";
}

TEST_F(device_cache_test, block_whose_work_cannot_be_awaited_stays_live) {
  const test::warning_recorder warnings;
  test::recording_resource upstream;
  device_cache users{{.stream = stream, .upstream = &upstream}, device};
  void* const block = users.allocate(4096);
  device.fail_next("cuEventRecord");
  device.fail_next("cuStreamSynchronize");
  users.deallocate(block, 4096, 256, other);
  EXPECT_EQ(warnings.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(users.stats().used_bytes, 4096u);
  EXPECT_EQ(users.collect(true), 0u);
  EXPECT_EQ(device.count("cuCtxSynchronize"), 0u) << "the call would invalidate any capture";
  users.deallocate(block, 4096);
}

TEST_F(device_cache_test, stream_waits_before_the_free_if_the_host_cannot_await_the_event) {
  void* const block = cache.allocate(4096);
  cache.deallocate(block, 4096, 256, other);
  device.fail_next("cuEventSynchronize", gpu::status::capture_unsupported);
  EXPECT_EQ(cache.collect(true), 4096u);
  EXPECT_EQ(device.count("cuStreamWaitEvent"), 1u);
  const std::vector<std::string> log = device.log();
  EXPECT_LT(std::ranges::find(log, "cuStreamWaitEvent"), std::ranges::find(log, "cuMemUnmap"));
}

TEST_F(device_cache_test, cache_records_no_event_on_a_capturing_stream) {
  void* const block = cache.allocate(4096);
  {
    const test::empty_capture graph{device, other};
    cache.deallocate(block, 4096, 256, other);
    cache.deallocate(cache.allocate(4096), 4096);  // which would query an event
  }
  EXPECT_EQ(device.count("cuEventRecord"), 0u);
  EXPECT_EQ(cache.collect(true), 4096u) << "only the block from before the capture";
  EXPECT_EQ(cache.release_captured(), 4096u);
  EXPECT_EQ(cache.collect(true), 4096u);
}

TEST_F(device_cache_test, cache_keeps_the_records_of_captured_blocks_in_place) {
  test::recording_resource bookkeeping;
  device_cache noting{{.stream = stream, .bookkeeping = &bookkeeping}, device};
  void* const block = noting.allocate(4096);
  {
    const test::empty_capture graph{device, other};
    noting.deallocate(block, 4096, 256, other);
  }
  bookkeeping.fail_from = bookkeeping.calls;
  bookkeeping.fail_count = test::recording_resource::never;
  const test::warning_recorder warnings;
  (void)noting.collect(true);
  EXPECT_TRUE(warnings.reports().empty());
  EXPECT_EQ(noting.release_captured(), 4096u);
}

TEST_F(device_cache_test, awaits_other_streams_also_in_a_capture_without_memory_for_a_record) {
  test::recording_resource bookkeeping;
  device_cache poor{{.stream = stream, .bookkeeping = &bookkeeping}, device};
  void* const kept = poor.allocate(4096);
  void* const block = poor.allocate(4096);
  poor.deallocate(kept, 4096, 256, other);  // makes an event and a record
  device.run(other);
  EXPECT_EQ(poor.allocate(4096), kept);
  poor.deallocate(kept, 4096);  // takes the record
  device.write(other, block, 4096);
  {
    const test::empty_capture graph{device, stream};
    bookkeeping.fail_from = bookkeeping.calls;
    poor.deallocate(block, 4096, 256, other);
    EXPECT_EQ(poor.stats().pending_bytes, 0u);
  }
  EXPECT_EQ(poor.allocate(4096), kept);
  EXPECT_EQ(poor.allocate(4096), block);
  device.write(stream, block, 4096);
  deallocate_blocks(poor, {kept, block}, 4096);
}

// ---- whatever device is current ---------------------------------------------------------------------------

TEST(device_cache_elsewhere, polls_and_awaits_events_with_its_own_device_current) {
  fake_device device{{.devices = 2}};
  EXPECT_EQ(device.make_current(1), gpu::status::success);
  {
    const gpu::stream other{device};
    gpu::detail::event_stock stock{device, 1, nullptr, "cache", std::pmr::new_delete_resource()};
    const std::optional<reuse_fence> fence = stock.record(other);
    ASSERT_TRUE(fence);
    ASSERT_EQ(device.make_current(0), gpu::status::success);
    gpu::device_number current = -1;
    stock.query([&] {
      EXPECT_FALSE(fence->done());
      EXPECT_EQ(device.current_device(current), gpu::status::success);
    });
    EXPECT_EQ(current, 1);
    device.fail_next("cuEventSynchronize", gpu::status::capture_unsupported);
    fence->wait();  // the default stream waits instead
    EXPECT_EQ(device.pending(nullptr), 0u) << "work of device 0, which is current again";
  }
  EXPECT_EQ(device.make_current(1), gpu::status::success);
  EXPECT_EQ(device.pending(nullptr), 1u);
}

// ---- running out ------------------------------------------------------------------------------------------

struct device_cache_ladder : device_cache_streams {
  device_cache cache{{.stream = stream, .upstream = &driver_blocks, .name = "tensors"}, device};

  /// Returns the calls since a moment, except queries of the device, the capture and the free memory.
  [[nodiscard]] std::vector<std::string> calls_from(std::size_t first) const {
    std::vector<std::string> log = device.log();
    log.erase(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(first));
    std::erase_if(log, [](std::string const& call) {
      return call == "cuCtxGetDevice" || call == "cuStreamIsCapturing" || call == "cuMemGetInfo" ||
             call == "cuThreadExchangeStreamCaptureMode";
    });
    return log;
  }
};

// S1.29
TEST_F(device_cache_ladder, drains_waits_trims_and_tries_once_more) {
  deallocate_blocks(cache, allocate_blocks(cache, 2, 300 * MiB), 300 * MiB);
  void* const pending = cache.allocate(200 * MiB);
  cache.deallocate(pending, 200 * MiB, 256, other);
  const std::size_t before = device.counts_total();
  void* const block = cache.allocate(900 * MiB);
  EXPECT_EQ(calls_from(before),
            (std::vector<std::string>{
                "cuMemAllocFromPoolAsync", "cuStreamSynchronize", "cuMemPoolGetAttribute", "cuMemPoolTrimTo",
                "cuMemPoolGetAttribute", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemFreeAsync",
                "cuEventSynchronize", "cuMemFreeAsync", "cuStreamSynchronize", "cuMemPoolGetAttribute",
                "cuMemPoolTrimTo", "cuMemPoolGetAttribute", "cuMemAllocFromPoolAsync"}));
  EXPECT_EQ(cache.stats().refused, 0u);
  EXPECT_EQ(cache.stats().held_bytes, 900 * MiB);
  cache.deallocate(block, 900 * MiB);
  cache.check_invariants();
}

// S1.29
TEST_F(device_cache_ladder, throws_out_of_memory_with_the_numbers_after_all_steps_fail) {
  void* const held = cache.allocate(600 * MiB);
  const std::size_t before = device.counts_total();
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)cache.allocate(500 * MiB); });
  EXPECT_STREQ(error.report().resource, "tensors");
  EXPECT_EQ(error.report().requested_bytes, 500 * MiB);
  EXPECT_EQ(error.report().used_bytes, 600 * MiB);
  EXPECT_EQ(error.report().committed_bytes, 600 * MiB);
  EXPECT_EQ(error.report().largest_bytes, 1 * GiB - 600 * MiB);
  const std::vector<std::string> calls = calls_from(before);
  EXPECT_EQ(driver_blocks.stats().refused, 2u) << "the resource is called once more, and no oftener";
  EXPECT_EQ(cache.stats().refused, 1u);
  cache.check_invariants();
  cache.deallocate(cache.allocate(100 * MiB), 100 * MiB);
  cache.deallocate(held, 600 * MiB);
}

// S1.29
TEST_F(device_cache_ladder, continues_after_a_refused_step) {
  // The resource tries a request a second time if its stream could be awaited.
  for (auto const& [call, tries] : {std::pair{"cuStreamSynchronize", 1u}, {"cuMemPoolTrimTo", 2u}}) {
    SCOPED_TRACE(call);
    deallocate_blocks(cache, allocate_blocks(cache, 3, 300 * MiB), 300 * MiB);
    device.fail_in(call, device.count(call), gpu::status::unknown, 2);
    device.fail_in("cuMemAllocFromPoolAsync", device.count("cuMemAllocFromPoolAsync"), {}, tries);
    void* const block = cache.allocate(100 * MiB);
    cache.deallocate(block, 100 * MiB);
    EXPECT_EQ(cache.collect(), 100 * MiB);
  }
}

TEST_F(device_cache_ladder, calls_a_user_upstream_once_more) {
  test::recording_resource below;
  limit_resource budget{&below, 1000};
  device_cache users{{.stream = stream, .upstream = &budget}, device};
  users.deallocate(users.allocate(600), 600);
  const std::size_t before = device.counts_total();
  void* const block = users.allocate(601);
  EXPECT_EQ(calls_from(before),
            (std::vector<std::string>{"cuStreamSynchronize", "cuStreamSynchronize", "cuMemPoolGetAttribute",
                                      "cuMemPoolTrimTo", "cuMemPoolGetAttribute"}))
      << "before the block goes back, and for the driver's pool";
  EXPECT_EQ(budget.stats().refused, 1u);
  EXPECT_THROW((void)users.allocate(400), out_of_memory);
  EXPECT_EQ(budget.stats().refused, 3u) << "asked once more, and no oftener";
  users.deallocate(block, 601);
}

// ---- captures ---------------------------------------------------------------------------------------------

struct device_cache_capture : device_cache_streams {
  device_cache cache{{.stream = stream, .max_blocks_per_size = 1}, device};

  std::optional<test::empty_capture> capture;

  void begin() { capture.emplace(device, stream); }
  /// Ends the capture, which must be valid, and nothing of the cache is in the graph.
  void end() { capture.reset(); }
};

TEST_F(device_cache_capture, miss_maps_memory_outside_the_graph_and_frees_it_afterwards) {
  cache.deallocate(cache.allocate(1000), 1000);
  begin();
  const std::size_t waits = device.count("cuStreamSynchronize");
  void* const block = cache.allocate(2000);
  EXPECT_TRUE(device.accessible(block, 2000));
  EXPECT_EQ(device.count("cuStreamSynchronize"), waits);
  EXPECT_EQ(cache.stats().cached_bytes, 1000u) << "nothing is drained";
  end();
  EXPECT_TRUE(device.accessible(block, 2000));
  cache.deallocate(block, 2000);
  EXPECT_EQ(cache.collect(true), 3000u);
  EXPECT_EQ(device.mapped_bytes(), 0u);
}

TEST_F(device_cache_capture, skips_the_retry_steps_on_a_user_upstream) {
  test::recording_resource below;
  device_cache users{{.stream = stream, .upstream = &below}, device};
  users.deallocate(users.allocate(1000), 1000);
  const std::size_t asked = device.count("cuMemGetInfo");
  begin();
  below.fail_from = below.calls;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)users.allocate(2000); });
  EXPECT_NE(std::string{error.what()}.find("capturing"), std::string::npos) << error.what();
  EXPECT_EQ(device.count("cuMemGetInfo"), asked);
  EXPECT_EQ(users.stats().cached_bytes, 1000u);
  EXPECT_EQ(below.calls, below.fail_from + 1);
  end();
}

TEST_F(device_cache_capture, unmaps_nothing_before_the_end_of_the_capture) {
  const std::vector<void*> blocks = allocate_blocks(cache, 3, 3 * MiB);
  begin();
  deallocate_blocks(cache, blocks, 3 * MiB);  // two of them exceed the limit
  EXPECT_EQ(cache.stats().cached_bytes, 3 * MiB);
  EXPECT_EQ(cache.collect(true), 0u);
  for (void* block : blocks) EXPECT_TRUE(device.accessible(block, 3 * MiB));
  end();
  EXPECT_EQ(cache.collect(true), 3 * MiB);
  EXPECT_EQ(device.physical_bytes(), 0u);
}

TEST_F(device_cache_capture, polls_no_events_during_the_capture) {
  void* const block = cache.allocate(1000);
  void* const small = cache.allocate(500);
  cache.deallocate(block, 1000, 256, other);
  device.run(other);
  begin();
  void* const mapped = cache.allocate(1000);
  EXPECT_NE(mapped, block) << "another stream uses the old block";
  cache.deallocate(small, 500);  // checks pending blocks
  EXPECT_EQ(cache.collect(true), 0u);
  EXPECT_EQ(device.count("cuEventQuery"), 0u);
  end();
  EXPECT_EQ(cache.allocate(1000), block);
  cache.deallocate(block, 1000);
  cache.deallocate(mapped, 1000);
}

TEST_F(device_cache_capture, destroying_the_cache_reports_bytes_lost_by_an_unordered_upstream) {
  const test::violation_recorder recorder;
  test::recording_resource below;
  void* lost = nullptr;
  {
    device_cache gone{{.stream = stream, .upstream = &below}, device};
    gone.deallocate(lost = gone.allocate(1000), 1000);
    begin();
  }
  EXPECT_EQ(below.outstanding, 1000u) << "work may use it";
  ASSERT_EQ(recorder.count(violation_kind::open_capture), 1u);
  EXPECT_NE(recorder.reports()[0].message.find("1000 bytes"), std::string::npos)
      << recorder.reports()[0].message;
  end();
  below.deallocate(lost, 1000, 256);
}

TEST_F(device_cache_test, refused_requests_reserve_no_record_for_a_return) {
  test::recording_resource bookkeeping;
  gpu::device_resource plain{{}, device};
  gpu::detail::waiting_upstream memory{&plain, 0, stream, "memory", &bookkeeping, device};
  memory.deallocate(memory.allocate(1000, 256), 1000, 256);
  const std::size_t outstanding = bookkeeping.outstanding;
  for (int i = 0; i < 1000; ++i) EXPECT_THROW((void)memory.allocate(2 * GiB, 256), out_of_memory);
  EXPECT_EQ(bookkeeping.outstanding, outstanding);
}

// ---- threads ----------------------------------------------------------------------------------------------

TEST(device_cache_threads, lose_nothing_and_never_share_a_block) {
  fake_device device{{.touchable = true}};
  const gpu::stream stream{device}, other{device};
  {
    device_cache cache{{.stream = stream, .max_cached_bytes = std::size_t{10} * 24}, device};
    EXPECT_EQ(test::storm(cache), 0u);
    test::on_threads([&](std::size_t thread) {
      for (std::size_t i = 0; i < 500; ++i) {
        void* const block = cache.allocate(64 + thread % 2);
        if (i % 3 == 0) cache.deallocate(block, 64 + thread % 2, 256, other);
        else cache.deallocate(block, 64 + thread % 2);
        if (i % 64 == 0) device.run(other);
        if (i % 100 == 0) (void)cache.collect(i % 200 == 0);
      }
    });
    cache.check_invariants();
    EXPECT_EQ(cache.stats().used_blocks, 0u);
  }
  EXPECT_EQ(device.outstanding, 0u);
}

// S1.34
TEST_F(device_cache_test, copies_of_an_allocator_share_blocks_and_counts) {
  std::pmr::polymorphic_allocator<float> one{&cache};
  const std::pmr::polymorphic_allocator<double> rebound{one};
  float* const block = one.allocate(1000);
  std::pmr::polymorphic_allocator<float>{rebound}.deallocate(block, 1000);
  EXPECT_EQ(cache.stats().cached_bytes, 4000u);
  EXPECT_EQ(cache.allocate(4000), block);
  EXPECT_TRUE(one == rebound);
  cache.deallocate(block, 4000);
}

}  // namespace
}  // namespace tidemark::test
