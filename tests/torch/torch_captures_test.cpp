// SPDX-License-Identifier: Apache-2.0
// Strategy: captures as torch.cuda.graph makes them: the pool is begun before the capture and ended after it,
// with a filter that knows the capture's streams. The fake driver ends a capture at each call that a driver
// might refuse, and finds memory that a launch uses although it was allocated again.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/event.hpp>

#include "captures.hpp"
#include "pluggable_allocator.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

constexpr std::size_t bytes = 1 * MiB;

struct torch_captures : torch_test, ::testing::WithParamInterface<char const*> {
  torch_captures() { EXPECT_EQ(torch.configure(GetParam(), -1, nullptr), nullptr); }

  using mempool_id = test::pluggable_allocator::mempool_id;
  static constexpr mempool_id first_pool{1, 0};

  /// Returns true for a capturing stream, like PyTorch's filter.
  test::pluggable_allocator::stream_filter capturing() {
    return [this](gpu::stream_handle stream) {
      bool is = false;
      return device.is_capturing(stream, is) == status::success && is;
    };
  }
  void begin(mempool_id pool = first_pool) {
    torch.begin_pool_fn(0, pool, capturing());
    ASSERT_EQ(device.begin_capture(main, gpu::capture_mode::global), status::success);
  }
  [[nodiscard]] gpu::graph_handle end(mempool_id pool = first_pool) {
    gpu::graph_handle graph = nullptr;
    EXPECT_EQ(device.end_capture(main, graph), status::success) << "a call has ended the capture";
    torch.end_pool_fn(0, pool);
    return graph;
  }
  [[nodiscard]] gpu::executable_handle instantiate(gpu::graph_handle graph) {
    const gpu::executable_handle executable = instantiated(device, graph);
    EXPECT_EQ(device.destroy_graph(graph), status::success);
    return executable;
  }
  void destroy(gpu::executable_handle executable, mempool_id pool = first_pool) {
    torch.release_pool_fn(0, pool);
    EXPECT_EQ(device.destroy_executable(executable), status::success);
  }
  /// A capture whose work writes two blocks; one of them outlives it.
  gpu::executable_handle capture(void*& temporary, void*& result, mempool_id pool = first_pool) {
    begin(pool);
    temporary = torch.malloc(bytes, main);
    write(temporary, bytes, main, "temporary");
    torch.raw_delete(temporary);
    result = torch.malloc(2 * bytes, main);
    write(result, 2 * bytes, main, "result");
    return instantiate(end(pool));
  }
};
INSTANTIATE_TEST_SUITE_P(each, torch_captures, ::testing::Values("heap", "planned"),
                         [](auto const& kind) { return std::string{kind.param}; });

// L.9
TEST_P(torch_captures, get_and_reuse_memory_without_a_forbidden_call) {
  begin();
  std::vector<void*> blocks;
  for (std::size_t i = 1; i < 60; ++i) blocks.push_back(torch.malloc(i * 10 * KiB, main));
  blocks.push_back(torch.malloc(80 * MiB, main));  // beyond the classes
  torch.raw_delete(blocks.back());
  EXPECT_EQ(torch.malloc(80 * MiB, main), blocks.back());
  for (void* block : blocks) torch.raw_delete(block);
  EXPECT_EQ(device.destroy_graph(end()), status::success);
  torch.release_pool_fn(0, first_pool);
}

// L.10
TEST_P(torch_captures, keep_the_memory_of_a_graph_while_it_can_be_launched) {
  void *temporary = nullptr, *result = nullptr;
  const gpu::executable_handle graph = capture(temporary, result);
  torch.raw_delete(result);
  torch.reset_fn();  // what others would get
  std::vector<void*> others;
  for (int i = 0; i < 40; ++i) {
    others.push_back(torch.malloc(i % 2 == 0 ? bytes : 2 * bytes, i % 3 == 0 ? side : main));
    write(others.back(), bytes, i % 3 == 0 ? side : main);
    EXPECT_NE(others.back(), temporary);
    EXPECT_NE(others.back(), result);
  }
  EXPECT_TRUE(device.accessible(temporary, bytes));
  EXPECT_TRUE(device.accessible(result, 2 * bytes));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device.launch(graph, side), status::success);
  device.run_all();
  destroy(graph);
}

// L.10
TEST_P(torch_captures, return_memory_after_the_pool_release_and_the_last_launch) {
  void *temporary = nullptr, *result = nullptr;
  const gpu::executable_handle graph = capture(temporary, result);
  ASSERT_EQ(device.launch(graph, side), status::success);
  torch.raw_delete(result);
  destroy(graph);
  EXPECT_GT(held_bytes(), 0u) << "the launch may still run";
  EXPECT_EQ(torch.stat("capture_pools"), 1u);
  torch.reset_fn();  // waits for it
  EXPECT_EQ(torch.stat("capture_pools"), 0u);
  EXPECT_EQ(held_bytes(), 0u);
}

TEST_P(torch_captures, keep_a_result_that_outlives_its_graph) {
  void *temporary = nullptr, *result = nullptr;
  destroy(capture(temporary, result));
  torch.reset_fn();
  EXPECT_TRUE(device.accessible(result, 2 * bytes));
  torch.raw_delete(result);
  torch.reset_fn();
  EXPECT_EQ(held_bytes(), 0u);
}

// L.10
TEST_P(torch_captures, share_a_pool_until_the_last_graph_of_it_ends) {
  void *temporary = nullptr, *result = nullptr, *second = nullptr, *kept = nullptr;
  const gpu::executable_handle graph = capture(temporary, result);
  const gpu::executable_handle next = capture(second, kept);
  EXPECT_EQ(second, temporary) << "graphs of one pool are launched one after another";
  EXPECT_NE(kept, result) << "which is live";
  torch.raw_delete(result);
  torch.raw_delete(kept);
  destroy(graph);
  torch.reset_fn();
  EXPECT_TRUE(device.accessible(temporary, bytes));
  ASSERT_EQ(device.launch(next, main), status::success);
  device.run_all();
  destroy(next);
  torch.reset_fn();
  EXPECT_EQ(held_bytes(), 0u);
}

TEST_P(torch_captures, leave_other_streams_on_their_own_memory) {
  begin();
  void* const outside = torch.malloc(bytes, side);
  write(outside, bytes, side);
  torch.raw_delete(outside);
  EXPECT_EQ(torch.malloc(bytes, side), outside);
  EXPECT_EQ(device.destroy_graph(end()), status::success);
  torch.release_pool_fn(0, first_pool);
  torch.reset_fn();
  EXPECT_EQ(torch.stat("capture_pools"), 0u);
}

// L.9
TEST_P(torch_captures, delay_a_recorded_block_until_they_end) {
  void* const block = torch.malloc(bytes, side);
  begin();
  EXPECT_EQ(device.launch_kernel(main, {.name = "captured", .reads = {range_of(block, bytes)}, .writes = {}}),
            status::success);
  torch.record_stream_fn(block, main);
  torch.raw_delete(block);
  EXPECT_NE(torch.malloc(bytes, side), block) << "its event would be in the graph";
  EXPECT_EQ(torch.stat("pending_bytes"), bytes);
  EXPECT_EQ(device.destroy_graph(end()), status::success);
  torch.release_pool_fn(0, first_pool);
  (void)torch.malloc(10, side);  // the event is recorded
  device.run_all();
  EXPECT_EQ(torch.malloc(bytes, side), block);
}

TEST_P(torch_captures, leave_a_block_of_the_legacy_stream_pending) {
  void* const block = torch.malloc(bytes, side);
  torch.record_stream_fn(block, nullptr);
  gpu::stream_handle const blocking = device.create_blocking_stream();
  {
    const empty_capture graph{device, blocking};
    torch.raw_delete(block);
    EXPECT_EQ(torch.stat("used_blocks"), 0u);
    EXPECT_EQ(torch.stat("used_bytes"), 0u);
    EXPECT_EQ(torch.stat("pending_bytes"), bytes);
  }
  EXPECT_EQ(device.destroy_stream(blocking), status::success);
}

TEST_P(torch_captures, stay_valid_under_memory_pressure) {
  torch.raw_delete(torch.malloc(150 * MiB, side));  // is kept
  begin();
  void* const large = torch.malloc(200 * MiB, main);
  EXPECT_NE(large, nullptr) << "what another stream keeps makes room";
  const std::string sentence = thrown_by([&] { (void)torch.malloc(200 * MiB, main); });
  EXPECT_EQ(sentence.find("CUDA out of memory. "), 0u) << sentence;
  EXPECT_EQ(device.destroy_graph(end()), status::success);
  torch.release_pool_fn(0, first_pool);
}

TEST_P(torch_captures, reuse_cached_memory_of_released_pools) {
  void *temporary = nullptr, *result = nullptr;
  begin();
  temporary = torch.malloc(200 * MiB, main);
  torch.raw_delete(temporary);
  const gpu::executable_handle graph = instantiate(end());
  EXPECT_EQ(thrown_by([&] { (void)torch.malloc(150 * MiB, main); }).find("CUDA out of memory. "), 0u);
  destroy(graph);
  result = torch.malloc(150 * MiB, main);
  EXPECT_NE(result, nullptr);
}

TEST_P(torch_captures, can_filter_by_thread_instead_of_stream) {
  const std::thread::id own = std::this_thread::get_id();
  torch.begin_pool_fn(0, {0, 5}, [own](gpu::stream_handle) { return std::this_thread::get_id() == own; });
  void* const inside = torch.malloc(bytes, main);
  torch.end_pool_fn(0, {0, 5});
  torch.raw_delete(inside);
  EXPECT_NE(torch.malloc(bytes, main), inside) << "it is the pool's";
  torch.release_pool_fn(0, {0, 5});
}

TEST_P(torch_captures, use_the_pool_begun_last) {
  const auto all = [](gpu::stream_handle) { return true; };
  torch.begin_pool_fn(0, {0, 1}, all);
  void* const outer = torch.malloc(bytes, main);
  torch.raw_delete(outer);
  torch.begin_pool_fn(0, {0, 2}, all);
  EXPECT_NE(torch.malloc(bytes, main), outer);
  torch.end_pool_fn(0, {0, 2});
  EXPECT_EQ(torch.malloc(bytes, main), outer);
  torch.end_pool_fn(0, {0, 1});
  torch.release_pool_fn(0, {0, 1});
  torch.release_pool_fn(0, {0, 2});
}

// L.12
TEST_P(torch_captures, name_a_pool_begun_twice_or_never) {
  const auto none = [](gpu::stream_handle) { return false; };
  torch.begin_pool_fn(0, {3, 0}, none);
  EXPECT_EQ(thrown_by([&] { torch.begin_pool_fn(0, {3, 0}, none); }),
            "tidemark_torch: pool (3, 0) is recorded to already");
  torch.end_pool_fn(0, {3, 0});
  EXPECT_EQ(thrown_by([&] { torch.end_pool_fn(0, {3, 0}); }),
            "tidemark_torch: pool (3, 0) is not recorded to");
  torch.release_pool_fn(0, {3, 0});
  ::testing::internal::CaptureStderr();
  torch.release_pool_fn(0, {3, 0});  // PyTorch calls it in a destructor
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tidemark_torch: release of pool (3, 0), which device 0 does not have\n");
}

TEST_P(torch_captures, pass_on_exceptions_of_a_filter) {
  torch.begin_pool_fn(0, {4, 0}, [](gpu::stream_handle) -> bool { throw std::runtime_error{"CUDA error"}; });
  EXPECT_EQ(thrown_by([&] { (void)torch.malloc(bytes, main); }), "tidemark_torch: CUDA error");
  torch.end_pool_fn(0, {4, 0});
  EXPECT_NE(torch.malloc(bytes, main), nullptr);
  torch.release_pool_fn(0, {4, 0});
}

}  // namespace
}  // namespace tidemark::test
