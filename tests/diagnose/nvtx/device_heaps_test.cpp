// SPDX-License-Identifier: Apache-2.0
// Strategy: device memory on the fake driver, watched by a tool that accepts the calls that compute-sanitizer
// accepted on an H100. A heap must be exactly one allocation of cudaMalloc, which must not be freed while it
// is a heap.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "caught.hpp"
#include "fake_device.hpp"
#include "strict_tool.hpp"

namespace tidemark::test {
namespace {

std::uintptr_t address(void const* block) { return reinterpret_cast<std::uintptr_t>(block); }

struct device_heaps : ::testing::Test {
  device_heaps() {
    tool.accepts = [this](std::uintptr_t first, std::size_t bytes) {
      return device.block_bytes_at(first) == bytes;
    };
  }

  fake_device device{{.capacity_bytes = 1 * GiB, .granularity_bytes = 2 * MiB}};
  gpu::stream stream{device};
  strict_tool tool;
};

TEST_F(device_heaps, cover_whole_allocations_with_a_region_for_each_block) {
  device_arena step{{.name = "step"}, stream.get(), device};
  void* const first = step.allocate(1000);
  ASSERT_EQ(tool.heaps().size(), 1u);
  EXPECT_EQ(tool.heaps()[0].name, "step");
  EXPECT_EQ(tool.heaps()[0].bytes, 64 * MiB);
  EXPECT_EQ(tool.refused, 0u);
  EXPECT_TRUE(tool.may_touch(address(first) + 999));
  EXPECT_FALSE(tool.may_touch(address(first) + 1000)) << "an overrun into the padding";
  void* second = nullptr;
  {
    device_arena::scope scope{step};
    second = step.allocate(1000);
    EXPECT_TRUE(tool.may_touch(address(second)));
  }
  EXPECT_FALSE(tool.may_touch(address(second))) << "a use after the rewind";
  EXPECT_TRUE(tool.may_touch(address(first)));
  step.reset();
  EXPECT_FALSE(tool.may_touch(address(first))) << "a use after the reset";
  EXPECT_EQ(device.count("cuMemCreate"), 0u);
  EXPECT_EQ(device.count("cuMemMap"), 0u);
}

TEST_F(device_heaps, double_with_each_chunk_and_close_before_their_memory_is_freed) {
  device_arena step{{.retain = 0, .name = "step"}, stream.get(), device};
  (void)step.allocate(1000);
  const arena_mark mark = step.mark();
  (void)step.allocate(65 * MiB);
  (void)step.allocate(100 * MiB);
  ASSERT_EQ(tool.heaps().size(), 3u);
  EXPECT_EQ(tool.heaps()[0].bytes + tool.heaps()[1].bytes + tool.heaps()[2].bytes, (64 + 128 + 256) * MiB);
  EXPECT_EQ(tool.refused, 0u);
  EXPECT_EQ(step.stats().committed_bytes, 448 * MiB);
  step.check_invariants();
  step.rewind(mark);
  EXPECT_EQ(step.trim(), 0u) << "an allocation goes as a whole";
  EXPECT_EQ(device.used_bytes(), 64 * MiB);
  step.release();
  EXPECT_EQ(tool.heaps().size(), 0u);
  EXPECT_EQ(device.used_bytes(), 0u);
}

TEST_F(device_heaps, are_as_large_as_an_oversize_block) {
  device_arena step{{.name = "step"}, stream.get(), device};
  (void)step.allocate(300 * MiB);
  EXPECT_EQ(tool.heaps().back().bytes % 256, 0u);
  EXPECT_EQ(tool.refused, 0u);
  EXPECT_EQ(device.budget(0).held_bytes(), device.used_bytes());
}

TEST_F(device_heaps, are_added_during_a_capture_and_removed_after_it) {
  device_arena step{{.retain = 0, .name = "step"}, stream.get(), device};
  const arena_mark mark = step.mark();
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.begin_capture(stream, gpu::capture_mode::global), gpu::status::success);
  (void)step.allocate(65 * MiB);
  step.rewind(mark);
  EXPECT_EQ(device.count("cuMemFree"), 0u);
  EXPECT_EQ(device.end_capture(stream, graph), gpu::status::success);
  EXPECT_EQ(device.destroy_graph(graph), gpu::status::success);
  EXPECT_EQ(tool.refused, 0u);
  step.release();
  EXPECT_EQ(tool.heaps().size(), 0u);
  EXPECT_EQ(device.used_bytes(), 0u);
}

TEST_F(device_heaps, reject_suspend_and_export_with_a_sentence) {
  const auto said = [](auto call) -> std::string { return test::message_of<std::logic_error>(call); };
  device_arena step{
      gpu::virtual_memory{{.stream = stream, .exported_as = gpu::handle_type::file_descriptor}, device}};
  void* const block = step.allocate(1000);
  EXPECT_EQ(said([&] { step.suspend(); }),
            "gpu::virtual_memory: suspend is not possible under compute-sanitizer, where memory is whole "
            "allocations of cuMemAlloc");
  EXPECT_EQ(said([&] { (void)step.space().export_memory({address(block), 1000}); }),
            "gpu::virtual_memory: export_memory is not possible under compute-sanitizer, where memory is "
            "whole allocations of cuMemAlloc");
  EXPECT_TRUE(tool.may_touch(address(block)));
  EXPECT_EQ(std::ranges::count(tool.calls, "open_heap"), 1) << "the tool accepts an allocation once";
}

TEST_F(device_heaps, make_pools_and_caches_use_whole_allocations_freed_in_stream_order) {
  device_pool blocks{{.stream = stream}, device};
  device_cache tensors{{.stream = stream}, device};
  void* const small = blocks.allocate(1000);
  void* const large = blocks.allocate(8 * MiB);
  void* const tensor = tensors.allocate(3000);
  EXPECT_EQ(device.block_bytes_at(address(large)), 8 * MiB);
  EXPECT_EQ(device.count("cuMemAllocFromPoolAsync"), 0u);
  EXPECT_EQ(
      device.launch_kernel(stream, {.name = "user", .reads = {}, .writes = {{address(large), 8 * MiB}}}),
      gpu::status::success);
  blocks.deallocate(large, 8 * MiB);
  tensors.deallocate(tensor, 3000);
  EXPECT_EQ(tensors.collect(true), 3000u);
  blocks.deallocate(small, 1000);
  EXPECT_GT(blocks.trim(), 0u);
  EXPECT_EQ(device.used_bytes(), 0u);
}

TEST_F(device_heaps, rejected_for_peer_mapped_memory_leave_the_arena_working) {
  fake_device two{{.capacity_bytes = 1 * GiB, .granularity_bytes = 2 * MiB, .devices = 2}};
  const gpu::stream own{two};
  device_arena step{gpu::virtual_memory{{.stream = own, .accessible_from = {1}}, two}};
  EXPECT_NE(step.allocate(1000), nullptr);
  EXPECT_GT(two.count("cuMemMap"), 0u);
  EXPECT_GT(tool.refused, 0u);
  EXPECT_EQ(tool.heaps().size(), 0u);
}

}  // namespace
}  // namespace tidemark::test
