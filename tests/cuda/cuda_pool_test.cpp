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

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "fake_device.hpp"
#include "made_up_addresses.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

// ---- the pool ---------------------------------------------------------------------------------------------

// S1.30
TEST(memory_pool, retains_all_memory_by_default) {
  fake_device device;
  const gpu::memory_pool by_default{{}, device};
  const gpu::memory_pool small{{.release_threshold_bytes = 3 * MiB}, device};
  EXPECT_EQ(device.release_threshold(by_default), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(device.release_threshold(small), 3 * MiB);
}

TEST(memory_pool, uses_the_current_device_by_default) {
  fake_device device{{.devices = 3}};
  ASSERT_EQ(device.make_current(2), gpu::status::success);
  const gpu::memory_pool current{{}, device};
  const gpu::memory_pool other{{.device = 1}, device};
  EXPECT_EQ(current.device(), 2);
  EXPECT_EQ(other.device(), 1);
}

TEST(memory_pool, move_assignment_updates_the_pools_counted_in_the_budget) {
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
  EXPECT_EQ(device.count("cuMemPoolGetAttribute"), 1u) << "destroyed pools are not queried";
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

TEST(memory_pool, failed_construction_reports_the_call_and_leaves_no_pool) {
  const gpu::memory_pool_options with_peer{.accessible_from = {1}};
  for (char const* call : {"cuCtxGetDevice", "cuMemPoolCreate", "cuMemPoolSetAttribute",
                           "cuDeviceCanAccessPeer", "cuMemPoolSetAccess"}) {
    SCOPED_TRACE(call);
    fake_device device{{.devices = 2}};
    device.fail_next(call, gpu::status::not_supported);
    const cuda_error error =
        test::caught<cuda_error>([&] { const gpu::memory_pool pool{with_peer, device}; });
    EXPECT_STREQ(error.call(), call);
    device.fail_next(call);
    EXPECT_ANY_THROW((gpu::memory_pool{with_peer, device}));
  }
}

TEST(memory_pool, failed_trim_throws_and_changes_nothing) {
  fake_device device;
  gpu::memory_pool pool{{}, device};
  device.fail_next("cuMemPoolTrimTo", gpu::status::not_supported);
  EXPECT_THROW(pool.trim(), cuda_error);
  pool.trim();
}

TEST(memory_pool, warns_if_the_driver_does_not_destroy_the_pool) {
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

TEST_F(async, deallocate_after_frees_after_the_work_queued_on_the_stream) {
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

TEST_F(async, warns_and_keeps_a_block_whose_stream_cannot_be_ordered) {
  gpu::stream other{device};
  const auto expect_lost = [&](auto deallocate) {
    void* const block = memory.allocate(4096);
    const test::warning_recorder recorder;
    deallocate(block);
    EXPECT_EQ(recorder.count(warning_kind::refused_return), 1u);
    EXPECT_EQ(device.count("cuMemFreeAsync"), 0u);
    EXPECT_EQ(memory.stats().used_blocks, 0u);
    return block;
  };
  void* const of_capture = expect_lost([&](void* block) {
    const test::empty_capture graph{device, other};
    memory.deallocate_after(block, 4096, 256, other);
  });
  void* const of_refused_wait = expect_lost([&](void* block) {
    gpu::event done{other, device};
    device.fail_next("cuStreamWaitEvent", gpu::status::unknown);
    device.fail_next("cuEventSynchronize", gpu::status::capture_unsupported);
    memory.deallocate_after(block, 4096, 256, done);
  });
  for (void* block : {of_capture, of_refused_wait})
    EXPECT_EQ(device.free_async(address_of(block), stream), gpu::status::success);
}

TEST_F(async, refused_free_warns) {
  void* const block = memory.allocate(4096);
  const test::warning_recorder recorder;
  device.fail_next("cuMemFreeAsync", gpu::status::unknown);
  memory.deallocate(block, 4096);
  ASSERT_EQ(recorder.count(warning_kind::refused_return), 1u);
  EXPECT_NE(recorder.reports()[0].message.find("4096 bytes"), std::string::npos);
  EXPECT_EQ(device.free_async(address_of(block), stream), gpu::status::success);
}

TEST(async_resource, constructor_rejects_a_null_pool) {
  fake_device device;
  EXPECT_THROW((gpu::async_resource{{.pool = nullptr}, device}), std::invalid_argument);
}

TEST(async_resource, uses_its_own_device_if_another_device_is_current) {
  fake_device device{{.devices = 2}};
  gpu::memory_pool pool{{.device = 1}, device};
  gpu::async_resource memory{{.pool = pool, .device = 1}, device};  // the default stream of device 1
  void* const block = memory.allocate(1 * MiB);
  EXPECT_TRUE(device.accessible(block, 1 * MiB, 1));
  memory.deallocate(block, 1 * MiB);
  EXPECT_EQ(device.current_now(), 0);
  EXPECT_EQ(device.pending(nullptr), 0u) << "work of device 0";
  ASSERT_EQ(device.make_current(1), gpu::status::success);
  EXPECT_EQ(device.pending(nullptr), 1u);
}

TEST_F(async, memory_of_a_graph_does_not_hide_retained_memory_of_the_pool) {
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
}  // namespace tidemark::test
