// SPDX-License-Identifier: Apache-2.0
// Strategy: the driver's stream-ordered allocator on the fake device: the calls, their order and their
// streams; the contents of the pool; and the failure of every call that can fail.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/async_resource.hpp>
#include <tidemark/cuda/memory/memory_pool.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "made_up_addresses.hpp"
#include "warning_recorder.hpp"

namespace tidemark {
namespace {

using test::address_of;
using test::fake_device;

// ---- the pool ---------------------------------------------------------------------------------------------

// S1.30
TEST(memory_pool, keeps_all_by_default) {
  fake_device device;
  const gpu::memory_pool by_default{{}, device};
  const gpu::memory_pool small{{.release_threshold_bytes = 3 * MiB}, device};
  EXPECT_EQ(device.release_threshold(by_default), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(device.release_threshold(small), 3 * MiB);
}

TEST(memory_pool, is_of_the_current_device_by_default) {
  fake_device device{{.devices = 3}};
  ASSERT_EQ(device.make_current(2), gpu::status::success);
  const gpu::memory_pool current{{}, device};
  const gpu::memory_pool other{{.device = 1}, device};
  EXPECT_EQ(current.device(), 2);
  EXPECT_EQ(other.device(), 1);
}

TEST(memory_pool, counts_in_the_budget_while_it_lives_however_it_was_assigned) {
  fake_device device;
  gpu::memory_pool first{{}, device};
  gpu::memory_pool second{{}, device};
  const gpu::pool_handle replaced = first.get();
  const gpu::pool_handle kept = second.get();
  first = std::move(second);
  EXPECT_EQ(first.get(), kept);
  EXPECT_EQ(device.budget(0).find_pool(replaced), nullptr);
  EXPECT_NE(device.budget(0).find_pool(kept), nullptr);
  EXPECT_EQ(device.budget(0).held_bytes(), 0u);
  EXPECT_EQ(device.count("cuMemPoolGetAttribute"), 1u) << "no pool that was destroyed is asked";
}

TEST(memory_pool, trim_frees_unused_memory) {
  fake_device device;
  gpu::memory_pool pool{{}, device};
  gpu::async_resource memory{pool, nullptr, device};
  void* const live = memory.allocate(1 * MiB);
  void* const dead = memory.allocate(2 * MiB);
  memory.deallocate(dead, 2 * MiB);
  device.run(nullptr);
  EXPECT_EQ(device.pool_reserved_bytes(pool), 3 * MiB);
  pool.trim(3 * MiB);
  EXPECT_EQ(device.pool_reserved_bytes(pool), 3 * MiB);
  pool.trim();
  EXPECT_EQ(device.pool_reserved_bytes(pool), 1 * MiB);
  memory.deallocate(live, 1 * MiB);
}

TEST(memory_pool, frees_memory_beyond_the_threshold_at_each_wait) {
  fake_device device;
  gpu::memory_pool pool{{.release_threshold_bytes = 1 * MiB}, device};
  gpu::async_resource memory{pool, nullptr, device};
  for (int i = 0; i < 3; ++i) {
    std::array<void*, 4> blocks{};
    for (void*& block : blocks) block = memory.allocate(1 * MiB);
    for (void* block : blocks) memory.deallocate(block, 1 * MiB);
    EXPECT_EQ(device.pool_reserved_bytes(pool), 4 * MiB);
    ASSERT_EQ(device.synchronize(), gpu::status::success);
    EXPECT_EQ(device.pool_reserved_bytes(pool), 1 * MiB);
  }
}

TEST(memory_pool, a_refusal_of_any_call_is_reported_and_leaves_no_pool) {
  for (char const* call : {"cuCtxGetDevice", "cuMemPoolCreate", "cuMemPoolSetAttribute"}) {
    SCOPED_TRACE(call);
    fake_device device;
    device.fail_next(call, gpu::status::not_supported);
    const cuda_error error = test::caught<cuda_error>([&] { const gpu::memory_pool pool{{}, device}; });
    EXPECT_STREQ(error.call(), call);
    device.fail_next(call);
    EXPECT_THROW((gpu::memory_pool{{}, device}), out_of_memory);
  }
}

TEST(memory_pool, a_trim_that_is_rejected_throws_and_changes_nothing) {
  fake_device device;
  gpu::memory_pool pool{{}, device};
  device.fail_next("cuMemPoolTrimTo", gpu::status::not_supported);
  EXPECT_THROW(pool.trim(), cuda_error);
  pool.trim();
}

TEST(memory_pool, a_driver_that_does_not_destroy_it_is_a_warning) {
  fake_device device;
  const test::warning_recorder recorder;
  gpu::pool_handle left = nullptr;
  {
    const gpu::memory_pool pool{{}, device};
    left = pool.get();
    device.fail_next("cuMemPoolDestroy", gpu::status::unknown);
  }
  ASSERT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_NE(recorder.reports()[0].message.find("cuMemPoolDestroy"), std::string::npos);
  EXPECT_EQ(device.destroy_pool(left), gpu::status::success);
}

// ---- the resource -----------------------------------------------------------------------------------------

struct async : ::testing::Test {
  fake_device device;  // faults when touched
  gpu::stream stream{device};
  gpu::memory_pool pool{{}, device};
  gpu::async_resource memory{pool, stream, device};
};

TEST_F(async, deallocate_after_a_stream_frees_behind_what_is_there) {
  gpu::stream other{device};
  void* const block = memory.allocate(4096);
  const gpu::event done{other, device};
  memory.deallocate_after(block, 4096, 256, other);
  EXPECT_EQ(device.count("cuStreamSynchronize"), 0u);
  EXPECT_EQ(device.pending(stream), 2u) << "a wait, and behind it the free";
  device.run(stream);
  EXPECT_TRUE(done.done());
  EXPECT_EQ(memory.stats().used_blocks, 0u);
}

TEST_F(async, a_block_that_another_streams_capture_uses_is_not_freed_and_warned_of) {
  gpu::stream other{device};
  void* const block = memory.allocate(4096);
  const test::warning_recorder recorder;
  {
    const test::empty_capture graph{device, other};
    memory.deallocate_after(block, 4096, 256, other);
  }
  EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(device.count("cuMemFreeAsync"), 0u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_EQ(device.free_async(address_of(block), stream), gpu::status::success);
}

TEST_F(async, a_block_that_nothing_can_wait_for_is_not_freed_and_warned_of) {
  gpu::stream other{device};
  void* const block = memory.allocate(4096);
  gpu::event done{other, device};
  const test::warning_recorder recorder;
  device.fail_next("cuStreamWaitEvent", gpu::status::unknown);
  device.fail_next("cuEventSynchronize", gpu::status::capture_unsupported);
  memory.deallocate_after(block, 4096, 256, done);
  EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(device.count("cuMemFreeAsync"), 0u);
  EXPECT_EQ(device.free_async(address_of(block), stream), gpu::status::success);
}

TEST_F(async, a_free_that_the_driver_refuses_is_a_warning) {
  void* const block = memory.allocate(4096);
  const test::warning_recorder recorder;
  device.fail_next("cuMemFreeAsync", gpu::status::unknown);
  memory.deallocate(block, 4096);
  ASSERT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_NE(recorder.reports()[0].message.find("4096 bytes"), std::string::npos);
  EXPECT_EQ(device.free_async(address_of(block), stream), gpu::status::success);
}

TEST(async_resource, without_a_pool_it_is_rejected) {
  fake_device device;
  EXPECT_THROW((gpu::async_resource{{.pool = nullptr}, device}), std::invalid_argument);
}

TEST(async_resource, uses_the_device_it_was_made_for_whatever_is_current) {
  fake_device device{{.devices = 2}};
  gpu::memory_pool pool{{.device = 1}, device};
  gpu::async_resource memory{{.pool = pool, .device = 1}, device};  // the default stream of device 1
  void* const block = memory.allocate(1 * MiB);
  EXPECT_TRUE(device.accessible(block, 1 * MiB, 1));
  memory.deallocate(block, 1 * MiB);
  gpu::device_number current = -1;
  ASSERT_EQ(device.current_device(current), gpu::status::success);
  EXPECT_EQ(current, 0);
  EXPECT_EQ(device.pending(nullptr), 0u) << "of device 0";
  ASSERT_EQ(device.make_current(1), gpu::status::success);
  EXPECT_EQ(device.pending(nullptr), 1u);
}

TEST_F(async, in_a_capture_it_allocates_memory_of_the_graph_which_does_not_hide_what_the_pool_retains) {
  memory.deallocate(memory.allocate(8192), 8192);
  ASSERT_EQ(device.begin_capture(stream, gpu::capture_mode::relaxed), gpu::status::success);
  void* const block = memory.allocate(4096);
  EXPECT_EQ(device.budget(0).held_bytes(), 8192u + 4096u);
  memory.deallocate(block, 4096);
  EXPECT_EQ(device.budget(0).held_bytes(), 8192u);
  gpu::graph_handle graph = nullptr;
  ASSERT_EQ(device.end_capture(stream, graph), gpu::status::success);
  std::size_t nodes = 0;
  ASSERT_EQ(device.node_count(graph, nodes), gpu::status::success);
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
  void* const retained = memory.allocate(8192);
  EXPECT_EQ(device.budget(0).held_bytes(), 8192u);
  memory.deallocate(retained, 8192);
}

}  // namespace
}  // namespace tidemark
