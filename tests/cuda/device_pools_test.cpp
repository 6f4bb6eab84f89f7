// SPDX-License-Identifier: Apache-2.0
// Strategy: blocks that move between streams. Each block returns to the heap of its stream, behind the work
// of the stream that used it last; the fake's clocks check this. Captures, streams that come and go, a full
// device, and many threads.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"
#include "seeds.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

struct device_pools_test : ::testing::Test {
  ~device_pools_test() override { memory.check_invariants(); }

  // A block that the stream `two` still uses.
  void* used_on_two(std::size_t bytes) {
    void* const block = memory.allocate(bytes, 256, one);
    EXPECT_EQ(gpu::put_behind(device, two, one), status::success);
    device.write(two, block, bytes);
    return block;
  }

  test::fake_device device{{.capacity_bytes = 64 * MiB, .granularity_bytes = unit, .touchable = true}};
  gpu::stream one{device}, two{device};
  device_pools memory{{.name = "shared"}, device};
};

TEST_F(device_pools_test, freed_block_is_reused_only_on_its_stream) {
  void* const block = memory.allocate(1000, 256, one);
  device.write(one, block, 1000);
  memory.deallocate(block, 1000, 256, one);
  void* const other = memory.allocate(1000, 256, two);
  EXPECT_NE(other, block);
  device.write(two, other, 1000);
  EXPECT_EQ(memory.allocate(1000, 256, one), block);
  memory.deallocate(block, 1000, 256, one);
  memory.deallocate(other, 1000, 256, two);
  EXPECT_EQ(memory.streams(), 2u);
}

TEST_F(device_pools_test, a_block_used_on_another_stream_waits_for_its_work) {
  for (std::size_t bytes : {std::size_t{1000}, 3 * MiB}) {
    void* const block = used_on_two(bytes);
    memory.deallocate(block, bytes, 256, two);
    EXPECT_EQ(memory.stats().pending_bytes, bytes);
    EXPECT_EQ(memory.stats().used_blocks, 0u);
    void* const meanwhile = memory.allocate(bytes, 256, one);
    EXPECT_NE(meanwhile, block);
    void* const both = memory.allocate(bytes, 256, one);
    device.run_all();
    memory.deallocate(meanwhile, bytes, 256, one);
    memory.deallocate(both, bytes, 256, one);
    EXPECT_GT(memory.trim(), 0u);
    EXPECT_EQ(memory.stats().pending_bytes, 0u);
    EXPECT_EQ(memory.stats().held_bytes, 0u);
  }
}

TEST_F(device_pools_test, request_reuses_blocks_after_the_work_of_other_streams) {
  void* const block = used_on_two(3 * MiB);
  memory.deallocate(block, 3 * MiB, 256, two);
  device.run_all();
  EXPECT_EQ(memory.allocate(3 * MiB, 256, one), block);
  device.write(one, block, 3 * MiB);
  memory.deallocate(block, 3 * MiB, 256, one);
}

TEST_F(device_pools_test, destructor_waits_for_pending_blocks_and_reports_no_leak) {
  const test::violation_recorder violations;
  {
    device_pools ending{{}, device};
    void* const block = ending.allocate(1000, 256, one);
    EXPECT_EQ(gpu::put_behind(device, two, one), status::success);
    device.write(two, block, 1000);
    ending.deallocate(block, 1000, 256, two);
  }
  EXPECT_EQ(violations.reports().size(), 0u) << "a block that waits is no leak, and its work has ended";
}

TEST_F(device_pools_test, thread_waits_if_no_event_can_be_recorded) {
  void* const block = used_on_two(1000);
  device.fail_next("cuEventCreate", status::unknown);
  memory.deallocate(block, 1000, 256, two);
  EXPECT_EQ(memory.stats().pending_bytes, 0u);
  EXPECT_EQ(memory.stats().deallocations, 1u);
}

TEST_F(device_pools_test, resource_of_a_stream_accepts_blocks_of_other_streams) {
  std::pmr::memory_resource* const of_one = memory.on(one);
  std::pmr::memory_resource* const of_two = memory.on(two);
  EXPECT_EQ(memory.on(one), of_one);
  void* const block = of_one->allocate(1000, 256);
  of_two->deallocate(block, 1000, 256);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u) << "behind what is on the second";
}

TEST_F(device_pools_test, legacy_stream_has_one_heap_and_the_per_thread_stream_is_rejected) {
  void* const block = memory.allocate(1000, 256, nullptr);
  memory.deallocate(block, 1000, 256, gpu::legacy_stream);
  EXPECT_EQ(memory.stats().pending_bytes, 0u);
  EXPECT_EQ(memory.allocate(1000, 256, gpu::legacy_stream), block);
  memory.deallocate(block, 1000, 256, nullptr);
  EXPECT_EQ(memory.streams(), 1u);
  EXPECT_THROW((void)memory.allocate(1, 256, gpu::per_thread_stream), std::invalid_argument);
  EXPECT_EQ(memory.streams(), 1u);
}

TEST_F(device_pools_test, forget_rejects_a_stream_with_live_blocks) {
  std::optional<gpu::stream> gone{std::in_place, device};
  void* const block = memory.allocate(1000, 256, *gone);
  device.write(*gone, block, 1000);
  const std::logic_error refusal = test::caught<std::logic_error>([&] { memory.forget(*gone); });
  EXPECT_NE(std::string{refusal.what()}.find("1 blocks"), std::string::npos) << refusal.what();
  EXPECT_EQ(gpu::put_behind(device, two, *gone), status::success);
  device.write(two, block, 1000);
  memory.deallocate(block, 1000, 256, two);
  memory.forget(*gone);  // waits for the other stream
  memory.forget(*gone);
  EXPECT_EQ(memory.streams(), 0u);
  EXPECT_EQ(memory.stats().held_bytes, 0u);
  gone.reset();
}

TEST_F(device_pools_test, reports_a_block_that_is_not_live_and_ignores_null) {
  const test::violation_recorder violations;
  memory.deallocate(nullptr, 10, 256, one);
  int foreign = 0;
  memory.deallocate(&foreign, 4, 256, one);
  ASSERT_EQ(violations.count(violation_kind::bad_deallocate), 1u);
  EXPECT_NE(violations.reports()[0].message.find("device_pools 'shared'"), std::string::npos);
  EXPECT_EQ(memory.streams(), 0u);
  void* const large = memory.allocate(3 * MiB, 256, one);
  memory.deallocate(large, 4 * MiB, 256, one);
  EXPECT_EQ(violations.count(violation_kind::bad_deallocate), 2u) << "a wrong size";
  memory.deallocate(large, 3 * MiB, 256, one);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  void* const pending = used_on_two(1000);
  for (gpu::stream_handle const last : {two.get(), two.get(), one.get()})
    memory.deallocate(pending, 1000, 256, last);
  EXPECT_EQ(violations.count(violation_kind::bad_deallocate), 4u);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u);
}

TEST_F(device_pools_test, pending_block_is_not_reused_while_its_stream_captures) {
  void* const block = used_on_two(3 * MiB);
  memory.deallocate(block, 3 * MiB, 256, two);
  in_capture(device, one, gpu::capture_mode::thread_local_, [&] {
    EXPECT_EQ(memory.trim(), 0u);
    EXPECT_EQ(memory.stats().pending_bytes, 3 * MiB);
    EXPECT_NE(memory.allocate(3 * MiB, 256, one), block) << "the second stream still uses it";
  });
  EXPECT_GT(memory.trim(), 0u);
  EXPECT_EQ(memory.stats().pending_bytes, 0u);
}

TEST_F(device_pools_test, full_device_reuses_a_pending_block) {
  void* const first = memory.allocate(256 * KiB, 256, one);
  void* const second = memory.allocate(256 * KiB, 256, one);
  const std::size_t room = 64 * MiB - memory.stats().held_bytes;
  void* const rest = memory.allocate(room, 256, two);
  device.write(two, first, 256 * KiB);
  memory.deallocate(first, 256 * KiB, 256, two);
  EXPECT_EQ(memory.allocate(256 * KiB, 256, one), first) << "after a wait, though no memory was returned";
  for (void* each : {first, second}) memory.deallocate(each, 256 * KiB, 256, one);
  memory.deallocate(rest, room, 256, two);
}

TEST_F(device_pools_test, two_streams_that_fill_the_device_concurrently_are_both_served) {
  test::on_threads(
      [&](std::size_t thread) {
        for (int i = 0; i < 30; ++i) {
          void* block = nullptr;
          while (block == nullptr) {
            try {
              block = memory.allocate(40 * MiB, 256, thread == 0 ? one : two);
            } catch (std::bad_alloc const&) {  // the other thread has its block
              std::this_thread::yield();
            }
          }
          memory.deallocate(block, 40 * MiB, 256, i % 2 == 0 ? one : two);
        }
      },
      2);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
}

TEST_F(device_pools_test, streams_are_forgotten_while_others_are_trimmed) {
  std::atomic<bool> ends = false;
  std::jthread trims{[&] {
    while (!ends) {
      (void)memory.trim();
      memory.check_invariants();
    }
  }};
  for (int i = 0; i < 200; ++i) {
    gpu::stream const brief{device};
    memory.deallocate(memory.allocate(1000, 256, brief), 1000, 256, i % 2 == 0 ? brief : two);
    memory.forget(brief);
  }
  ends = true;
  trims.join();
  EXPECT_EQ(memory.streams(), 0u);
}

TEST_F(device_pools_test, resource_of_a_stream_is_a_stream_ordered_upstream) {
  auto const* const of_one = dynamic_cast<gpu::detail::stream_ordered const*>(memory.on(one));
  ASSERT_NE(of_one, nullptr);
  EXPECT_TRUE(of_one->is_ordered_by(one));
  EXPECT_FALSE(of_one->is_ordered_by(two));
}

TEST_F(device_pools_test, a_block_freed_in_a_capture_stays_live_until_its_graph_has_ended) {
  void* const block = memory.allocate(1000, 256, one);
  one.synchronize();
  const gpu::graph_handle graph = captured(device, two, gpu::capture_mode::thread_local_, [&] {
    device.write(two, block, 1000);
    memory.deallocate(block, 1000, 256, two);
  });
  EXPECT_EQ(memory.stats().used_blocks, 1u);
  EXPECT_EQ(memory.trim(), 0u) << "the graph has it";
  EXPECT_THROW(memory.forget(one), std::logic_error);
  EXPECT_EQ(device.destroy_graph(graph), status::success);
  EXPECT_EQ(memory.release_captured(), 1000u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
}

TEST_F(device_pools_test, idle_memory_of_other_streams_serves_a_full_device) {
  const std::size_t most = 48 * MiB;
  (void)memory.on(two);
  memory.deallocate(memory.allocate(most, 256, one), most, 256);
  const std::size_t infos = device.count("cuMemGetInfo");
  void* const next = memory.allocate(most, 256, two);
  EXPECT_EQ(memory.stats().held_bytes, most);
  EXPECT_EQ(memory.stats().retries, 1u);
  const std::size_t tries = 3;  // two before the heaps of other streams return memory
  EXPECT_EQ(device.count("cuMemGetInfo"), infos + tries) << "a refusal searches for no largest request";
  memory.deallocate(next, most, 256);
}

TEST_F(device_pools_test, returns_idle_memory_for_other_resources_on_a_full_device) {
  const std::size_t most = 48 * MiB;
  memory.deallocate(memory.allocate(most, 256, one), most, 256, one);
  gpu::device_resource plain{{}, device};
  void* const block = plain.allocate(most);
  EXPECT_EQ(memory.stats().held_bytes, 0u);
  plain.deallocate(block, most);
}

TEST_F(device_pools_test, callbacks_of_a_full_device_may_free_blocks_of_the_same_stream) {
  void* block = memory.allocate(48 * MiB, 256, one);
  const auto asked = device.budget(0).on_exhausted([&] {
    if (block == nullptr) return false;
    std::thread{[&] { memory.deallocate(std::exchange(block, nullptr), 48 * MiB, 256, one); }}.join();
    return true;
  });
  void* const next = memory.allocate(32 * MiB, 256, one);
  EXPECT_EQ(block, nullptr);
  memory.deallocate(next, 32 * MiB, 256, one);
}

TEST_F(device_pools_test, statistics_divide_the_held_memory) {
  void* const large = memory.allocate(3 * MiB, 256, one);
  void* const small = memory.allocate(1000, 256, two);
  memory.deallocate(memory.allocate(5 * MiB, 256, one), 5 * MiB, 256, one);
  const device_pools_stats now = memory.stats();
  EXPECT_EQ(now.held_bytes, device.physical_bytes());
  EXPECT_EQ(now.used_bytes, 3 * MiB + 1024) << "the size of the small block's class";
  EXPECT_GE(now.cached_bytes, 5 * MiB - 2 * unit);
  EXPECT_EQ(now.held_bytes, now.used_bytes + now.cached_bytes + now.stranded_bytes);
  memory.deallocate(large, 3 * MiB, 256);
  memory.deallocate(small, 1000, 256);
  EXPECT_EQ(memory.stats().used_bytes, 0u);
}

TEST_F(device_pools_test, largest_request_of_a_stream_succeeds_and_fills_the_device) {
  const std::size_t most = memory.largest_request(one);
  EXPECT_EQ(most, 64 * MiB);
  void* const block = memory.allocate(most, 256, one);
  EXPECT_EQ(memory.largest_request(one), 0u);
  EXPECT_EQ(memory.largest_request(two), 0u);
  memory.deallocate(block, most, 256);
}

TEST_F(device_pools_test, heap_keeps_idle_memory_up_to_its_limit) {
  device_pools limited{{.max_cached_bytes = 4 * MiB}, device};
  void* const block = limited.allocate(32 * MiB, 256, one);
  limited.deallocate(block, 32 * MiB, 256, one);
  EXPECT_LE(limited.stats().cached_bytes, 4 * MiB);
  EXPECT_GT(limited.stats().cached_bytes, 0u);
  device_pools none{{.max_cached_bytes = 0}, device};
  none.deallocate(none.allocate(4096, 256, one), 4096, 256, one);
  (void)none.largest_request(one);
  EXPECT_EQ(none.stats().cached_bytes, 0u) << "an empty slab is idle memory too";
}

TEST_F(device_pools_test, a_request_without_memory_changes_nothing) {
  const out_of_memory refused =
      test::caught<out_of_memory>([&] { (void)memory.allocate(2 * GiB, 256, one); });
  EXPECT_EQ(refused.report().largest_bytes, 64 * MiB);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  device.fail_next("cuMemGetAllocationGranularity", status::unknown);
  EXPECT_THROW((void)memory.allocate(1, 256, two), cuda_error);
  EXPECT_EQ(memory.streams(), 1u);
}

TEST(device_pools_without_mapping, use_chunks_from_the_first_refused_call_and_report_it_once) {
  for (char const* call : {"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                           "cuMemSetAccess"}) {
    SCOPED_TRACE(call);
    test::fake_device device;
    const gpu::stream one{device}, two{device};
    device.fail_in(call, 0, status::not_supported, 100);
    const test::warning_recorder recorder;
    device_pools memory{{}, device};
    for (gpu::stream_handle const each : {one.get(), two.get()}) {
      for (const std::size_t bytes : {std::size_t{300}, 3 * MiB, 5 * MiB}) {
        void* const block = memory.allocate(bytes, 256, each);
        device.write(each, block, bytes);
        memory.deallocate(block, bytes, 256);
        EXPECT_EQ(memory.allocate(bytes, 256, each), block);
      }
    }
    in_capture(device, one, gpu::capture_mode::thread_local_,
               [&] { memory.deallocate(memory.allocate(3 * MiB, 256, one, 1), 3 * MiB, 256); });
    memory.end_capture(1);
    EXPECT_EQ(device.count("cuMemAlloc"), 7u);
    EXPECT_EQ(memory.stats().held_bytes, device.outstanding);
    EXPECT_EQ(device.reserved_bytes(), 0u);
    EXPECT_EQ(recorder.count(warning_kind::refused_memory), 1u);
    memory.check_invariants();
  }
}

TEST(device_pools_options, rejects_zero_kinds) {
  test::fake_device device;
  EXPECT_THROW((device_pools{{.max_kinds = 0}, device}), std::invalid_argument);
}

TEST_F(device_pools_test, serves_threads_on_several_streams) {
  std::array<gpu::stream, 4> streams{gpu::stream{device}, gpu::stream{device}, gpu::stream{device},
                                     gpu::stream{device}};
  test::on_threads([&](std::size_t t) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 300; ++i) {
      blocks.push_back(memory.allocate(1000, 256, streams[t]));
      if (i % 50 == 0) (void)memory.trim();
      if (blocks.size() < 5) continue;
      for (void* each : blocks) memory.deallocate(each, 1000, 256, streams[(t + i) % streams.size()]);
      blocks.clear();
    }
  });
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(memory.stats().allocations, 1200u);
  device.run_all();
  for (gpu::stream const& each : streams) memory.forget(each);
  EXPECT_EQ(memory.streams(), 0u);
}

// ---- recorded streams -------------------------------------------------------------------------------------

TEST_F(device_pools_test, a_block_waits_for_each_recorded_stream) {
  const gpu::stream third{device};
  void* const block = memory.allocate(1000, 256, one);
  for (gpu::stream_handle const each : {two.get(), third.get()}) {
    EXPECT_EQ(gpu::put_behind(device, each, one), status::success);
    device.write(each, block, 1000);
    EXPECT_EQ(gpu::put_behind(device, third, two), status::success);
    EXPECT_TRUE(memory.record_use(block, each));
    EXPECT_TRUE(memory.record_use(block, each)) << "once more changes nothing";
  }
  EXPECT_TRUE(memory.record_use(block, one));
  memory.deallocate(block, 1000, 256);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u);
  device.run(two);
  EXPECT_NE(memory.allocate(3 * MiB, 256, one), nullptr);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u) << "behind the third stream";
  device.run(third);
  EXPECT_NE(memory.allocate(3 * MiB, 256, one), nullptr);
  EXPECT_EQ(memory.stats().pending_bytes, 0u);
}

TEST_F(device_pools_test, trim_waits_for_every_stream_of_a_block) {
  const gpu::stream third{device};
  void* const of_both = used_on_two(1000);
  EXPECT_EQ(gpu::put_behind(device, third, two), status::success);
  device.write(third, of_both, 1000);
  EXPECT_TRUE(memory.record_use(of_both, two));
  EXPECT_TRUE(memory.record_use(of_both, third));
  memory.deallocate(of_both, 1000, 256);
  void* const later = used_on_two(1000);
  memory.deallocate(later, 1000, 256, two);
  EXPECT_EQ(memory.stats().pending_bytes, 2000u);
  (void)memory.trim();
  EXPECT_EQ(memory.stats().pending_bytes, 0u);
}

TEST_F(device_pools_test, a_block_of_one_stream_is_freed_without_a_call) {
  void* const block = memory.allocate(1000, 256, one);
  EXPECT_EQ(calls_of(device, [&] { memory.deallocate(block, 1000, 256); }), call_names{});
  EXPECT_EQ(memory.allocate(1000, 256, one), block);
  int foreign = 0;
  EXPECT_FALSE(memory.record_use(&foreign, two));
}

TEST_F(device_pools_test, a_recorded_capture_keeps_a_block_until_it_ends) {
  void* const block = memory.allocate(1000, 256, one);
  in_capture(device, two, gpu::capture_mode::thread_local_, [&] {
    EXPECT_TRUE(memory.record_use(block, two));
    memory.deallocate(block, 1000, 256);
    EXPECT_EQ(memory.stats().captured_bytes, 1000u);
    memory.end_capture(0);
    EXPECT_EQ(memory.stats().captured_bytes, 1000u) << "the capture is open";
  });
  memory.end_capture(0);
  EXPECT_EQ(memory.stats().captured_bytes, 0u);
  EXPECT_EQ(memory.stats().pending_bytes, 1000u) << "behind what the stream did before";
}

// ---- pools of graphs --------------------------------------------------------------------------------------

TEST_F(device_pools_test, memory_freed_in_a_capture_serves_later_captures_of_its_pool_on_any_stream) {
  void *temporary = nullptr, *output = nullptr;
  in_capture(device, one, gpu::capture_mode::thread_local_, [&] {
    temporary = memory.allocate(3 * MiB, 256, one, 7);
    memory.deallocate(temporary, 3 * MiB, 256);
    EXPECT_EQ(memory.allocate(3 * MiB, 256, one, 7), temporary);
    memory.deallocate(temporary, 3 * MiB, 256);
    output = memory.allocate(1 * MiB, 256, one, 7);
  });
  memory.end_capture(7);
  in_capture(device, two, gpu::capture_mode::thread_local_, [&] {
    void* const next = memory.allocate(2 * MiB, 256, two, 7);
    EXPECT_GE(next, temporary);
    EXPECT_LT(next, static_cast<char*>(temporary) + 3 * MiB);
    memory.deallocate(next, 2 * MiB, 256);
  });
  memory.end_capture(7);
  EXPECT_EQ(memory.streams(), 0u);
  EXPECT_FALSE(memory.release_graphs(7)) << "the output is live";
  EXPECT_TRUE(device.accessible(temporary, 3 * MiB));
  memory.deallocate(output, 1 * MiB, 256);
  EXPECT_EQ(memory.trim(), 0u) << "addresses of graphs stay";
  EXPECT_TRUE(memory.release_graphs(7));
  EXPECT_EQ(memory.stats().held_bytes, 0u);
  EXPECT_EQ(memory.stats().allocations, 4u) << "the blocks of the pool still count";
  EXPECT_EQ(memory.stats().deallocations, 4u);
}

TEST_F(device_pools_test, memory_of_graphs_serves_no_other_pool_and_no_eager_work) {
  in_capture(device, one, gpu::capture_mode::thread_local_,
             [&] { memory.deallocate(memory.allocate(3 * MiB, 256, one, 1), 3 * MiB, 256); });
  memory.end_capture(1);
  const std::size_t held = memory.stats().held_bytes;
  void* const eager = memory.allocate(3 * MiB, 256, one);
  void* other = nullptr;
  in_capture(device, one, gpu::capture_mode::thread_local_,
             [&] { other = memory.allocate(3 * MiB, 256, one, 2); });
  memory.end_capture(2);
  EXPECT_EQ(memory.stats().held_bytes, 3 * held);
  memory.deallocate(eager, 3 * MiB, 256);
  memory.deallocate(other, 3 * MiB, 256);
}

TEST_F(device_pools_test, streams_of_one_capture_share_no_memory_until_it_ends) {
  in_capture(device, one, gpu::capture_mode::thread_local_, [&] {
    const gpu::event forked{one, device};
    two.wait(forked);  // draws the stream into the capture
    void* const first = memory.allocate(3 * MiB, 256, one, 1);
    memory.deallocate(first, 3 * MiB, 256);
    void* const beside = memory.allocate(3 * MiB, 256, two, 1);
    EXPECT_NE(beside, first);
    memory.deallocate(beside, 3 * MiB, 256);
    void* const used_by_two = memory.allocate(3 * MiB, 256, one, 1);
    EXPECT_TRUE(memory.record_use(used_by_two, two));
    memory.deallocate(used_by_two, 3 * MiB, 256);
    EXPECT_NE(memory.allocate(3 * MiB, 256, one, 1), used_by_two) << "the second stream may still use it";
    const gpu::event joined{two, device};
    one.wait(joined);
  });
  memory.end_capture(1);
  EXPECT_EQ(memory.stats().captured_bytes, 0u);
}

TEST_F(device_pools_test, end_of_a_nested_capture_leaves_memory_to_the_stream_that_still_captures) {
  in_capture(device, one, gpu::capture_mode::thread_local_, [&] {
    void* const first = memory.allocate(3 * MiB, 256, one, 1);
    memory.deallocate(first, 3 * MiB, 256);
    memory.end_capture(1);
    void* const nested = memory.allocate(3 * MiB, 256, two, 1);
    EXPECT_NE(nested, first);
    EXPECT_EQ(memory.allocate(3 * MiB, 256, one, 1), first);
    memory.deallocate(nested, 3 * MiB, 256);
    memory.end_capture(1);
    EXPECT_EQ(memory.allocate(3 * MiB, 256, two, 1), nested);
  });
  memory.end_capture(1);
}

TEST_F(device_pools_test, an_output_freed_between_captures_waits_for_its_stream) {
  void* output = nullptr;
  in_capture(device, one, gpu::capture_mode::thread_local_,
             [&] { output = memory.allocate(3 * MiB, 256, one, 1); });
  memory.end_capture(1);
  device.write(one, output, 3 * MiB);
  memory.deallocate(output, 3 * MiB, 256);
  const auto in_next_capture = [&] {
    void* block = nullptr;
    in_capture(device, two, gpu::capture_mode::thread_local_,
               [&] { block = memory.allocate(3 * MiB, 256, two, 1); });
    memory.end_capture(1);
    return block;
  };
  EXPECT_NE(in_next_capture(), output) << "the first stream still writes it";
  device.run(one);
  EXPECT_EQ(in_next_capture(), output);
}

// ---- plans ------------------------------------------------------------------------------------------------

TEST_F(device_pools_test, steps_of_each_stream_are_planned) {
  device_pools planned{{.plans = true}, device};
  for (std::uint64_t i = 0; i < 6; ++i) {
    planned.begin_step(i % 2);
    for (gpu::stream_handle const each : {one.get(), two.get()}) {
      void* const block = planned.allocate((i % 2 == 0 ? 4 : 9) * MiB, 256, each);
      device.write(each, block, MiB);
      planned.deallocate(block, (i % 2 == 0 ? 4 : 9) * MiB, 256);
    }
  }
  planned.end_step();
  planned.end_step();
  EXPECT_EQ(planned.step_stats().steps, 12u);
  EXPECT_EQ(planned.step_stats().planned_steps, 8u);
  EXPECT_EQ(planned.stats().allocations, 12u);
  EXPECT_EQ(planned.stats().peak_requested_bytes, 9 * MiB);
  planned.check_invariants();
  EXPECT_GT(planned.trim(), 0u);
  EXPECT_EQ(planned.stats().held_bytes, 0u);
  planned.forget(two);
  EXPECT_EQ(planned.step_stats().steps, 12u);
  EXPECT_EQ(planned.step_stats().plans, 2u) << "those of the other stream";
}

// Steps, graphs, recorded streams and trims; graphs of one pool are launched on one stream.
TEST_F(device_pools_test, random_programs_with_graphs_and_plans_have_no_race) {
  struct block {
    void* first;
    std::size_t bytes;
    gpu::stream_handle on;
  };
  std::array<gpu::stream_handle, 2> const streams{one.get(), two.get()};
  test::run_for_seeds(
      [&](std::uint64_t seed, auto const& run) {
        device_pools all{{.plans = seed % 2 == 0}, device};
        std::mt19937_64 random{seed};
        std::vector<block> live;
        std::vector<gpu::executable_handle> graphs;
        const auto free_one = [&](std::size_t i) {
          all.deallocate(live[i].first, live[i].bytes, 256);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        };
        const auto bytes = [&] { return std::size_t{256} << random() % 14; };
        const auto capture = [&](gpu::stream_handle on) {
          const gpu::graph_handle graph = captured(device, on, gpu::capture_mode::thread_local_, [&] {
            for (int i = 0; i < 4; ++i) {
              const std::size_t size = bytes();
              void* const temporary = all.allocate(size, 256, on, 1);
              device.write(on, temporary, size, "captured");
              all.deallocate(temporary, size, 256);
            }
          });
          all.end_capture(1);
          graphs.push_back(instantiated(device, graph));
          EXPECT_EQ(device.destroy_graph(graph), status::success);
        };
        struct {
          std::function<void()> step;
          void check_contents() const {}
        } program;
        program.step = [&] {
          gpu::stream_handle const on = streams[random() % 2],
                                   other = on == one.get() ? two.get() : one.get();
          const std::uint64_t what = random() % 100;
          if (what < 45 && live.size() < 20) {
            const std::size_t size = bytes();
            live.push_back({all.allocate(size, 256, on), size, on});
            device.write(on, live.back().first, size);
          } else if (what < 60 && !live.empty()) {
            block const& shared = live[random() % live.size()];
            gpu::stream_handle const reader = shared.on == one.get() ? two.get() : one.get();
            EXPECT_EQ(gpu::put_behind(device, reader, shared.on), status::success);
            device.write(reader, shared.first, shared.bytes, "other stream");
            EXPECT_EQ(gpu::put_behind(device, shared.on, reader), status::success);
            EXPECT_TRUE(all.record_use(shared.first, reader));
          } else if (what < 80 && !live.empty()) {
            free_one(random() % live.size());
          } else if (what < 85) {
            all.begin_step(random() % 2);
          } else if (what < 88 && graphs.size() < 5) {
            capture(other);
          } else if (what < 92 && !graphs.empty()) {
            EXPECT_EQ(device.launch(graphs[random() % graphs.size()], one), status::success);
          } else if (what < 94) {
            (void)all.trim();
          } else {
            device.run(on);
          }
        };
        run(program);
        all.end_step();
        while (!live.empty()) free_one(0);
        EXPECT_EQ(device.synchronize(), status::success);
        for (gpu::executable_handle each : graphs)
          EXPECT_EQ(device.destroy_executable(each), status::success);
        all.check_invariants();
        EXPECT_TRUE(all.release_graphs(1));
        EXPECT_EQ(all.stats().used_blocks, 0u);
      },
      500);
}

// Blocks wander between streams at random; each stream is put behind the block's before it uses it.
TEST_F(device_pools_test, random_programs_have_no_race) {
  struct block {
    void* first;
    std::size_t bytes;
    gpu::stream_handle on;
  };
  std::array<gpu::stream_handle, 3> const streams{one.get(), two.get(), nullptr};
  test::run_for_seeds(
      [&](std::uint64_t seed, auto const& run) {
        std::mt19937_64 random{seed};
        std::vector<block> live;
        struct {
          std::function<void()> step;
          void check_contents() const {}
        } program;
        program.step = [&] {
          gpu::stream_handle const on = streams[random() % streams.size()];
          if (live.size() < 20 && random() % 2 == 0) {
            const std::size_t bytes = std::size_t{256} << random() % 13;
            live.push_back({memory.allocate(bytes, 256, on), bytes, on});
            device.write(on, live.back().first, bytes);
          } else if (!live.empty() && random() % 3 != 0) {
            block& any = live[random() % live.size()];
            EXPECT_EQ(gpu::put_behind(device, on, any.on), status::success);
            any.on = on;
            device.write(on, any.first, any.bytes);
          } else if (!live.empty()) {
            const std::size_t i = random() % live.size();
            memory.deallocate(live[i].first, live[i].bytes, 256, live[i].on);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
          }
          if (random() % 20 == 0) (void)memory.trim();
          if (random() % 10 == 0) device.run(on);
        };
        run(program);
        for (block const& each : live) memory.deallocate(each.first, each.bytes, 256, each.on);
      },
      2000);
}

}  // namespace
}  // namespace tidemark::test
