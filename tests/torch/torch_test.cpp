// SPDX-License-Identifier: Apache-2.0
// Strategy: the library as PyTorch loads and calls it, on a fake device that finds every unordered access.
// Each fact is tested for each selectable resource, unless it depends on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include <unistd.h>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/event.hpp>

#include "device_calls.hpp"
#include "pluggable_allocator.hpp"
#include "thread_storm.hpp"
#include "trace_files.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

struct torch_resources : torch_test, ::testing::WithParamInterface<char const*> {
  torch_resources() { EXPECT_EQ(torch.configure(GetParam(), -1, nullptr), nullptr); }
};
INSTANTIATE_TEST_SUITE_P(each, torch_resources, ::testing::Values("heap", "planned"),
                         [](auto const& kind) { return std::string{kind.param}; });

// L.3
TEST_P(torch_resources, never_overlaps_live_blocks) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 300; ++i) blocks.push_back(torch.malloc(1 + 777 * i, i % 3 == 0 ? side : main));
  for (std::size_t i = 0; i < 300; i += 2) torch.raw_delete(blocks[i]);
  for (std::size_t i = 0; i < 300; ++i) (void)torch.malloc(1 + 555 * i, main);
}

// L.3
TEST_P(torch_resources, returns_null_for_0_bytes_and_accepts_null) {
  EXPECT_EQ(torch.malloc(0, main), nullptr);
  torch.raw_delete(nullptr);
  EXPECT_STREQ(torch.stats(0), "{}") << "nothing was made for it";
}

// L.3
TEST_P(torch_resources, reuses_a_freed_block_on_its_stream_without_a_call) {
  void* const first = torch.malloc(1 * MiB, main);
  write(first, 1 * MiB, main);
  torch.raw_delete(first);
  EXPECT_EQ(calls_of(device,
                     [&] {
                       for (int i = 0; i < 10; ++i) {
                         void* const again = torch.malloc(1 * MiB, main);
                         EXPECT_EQ(again, first);
                         torch.raw_delete(again);
                       }
                     }),
            call_names{});
}

// L.4
TEST_P(torch_resources, keeps_a_freed_block_for_its_own_stream) {
  void* const block = torch.malloc(1 * MiB, main);
  write(block, 1 * MiB, main);
  torch.raw_delete(block);
  void* const other = torch.malloc(1 * MiB, side);
  EXPECT_NE(other, block);
  write(other, 1 * MiB, side);  // a race, if any byte were that of the block
  EXPECT_EQ(torch.malloc(1 * MiB, main), block);
}

// L.4
TEST_P(torch_resources, frees_a_recorded_block_after_the_work_of_the_other_stream) {
  void* const block = torch.malloc(1 * MiB, main);
  write(block, 1 * MiB, main);
  side_waits_for_main();
  write(block, 1 * MiB, side, "copy");
  torch.record_stream_fn(block, side);
  torch.raw_delete(block);
  EXPECT_EQ(torch.stat("pending_bytes"), 1 * MiB);
  void* const meanwhile = torch.malloc(1 * MiB, main);
  EXPECT_NE(meanwhile, block) << "the copy has not run";
  device.run(side);
  void* const after = torch.malloc(1 * MiB, main);
  EXPECT_EQ(after, block);
  write(after, 1 * MiB, main);  // a race, if the copy were not waited for
  EXPECT_EQ(torch.stat("pending_bytes"), 0u);
}

// L.5
TEST_P(torch_resources, raises_out_of_memory_with_a_message_and_stays_usable) {
  void* const kept = torch.malloc(100 * MiB, main);
  const std::string sentence = thrown_by([&] { (void)torch.malloc(200 * MiB, main); });
  EXPECT_EQ(sentence.find("CUDA out of memory. tidemark_torch, 209715200 bytes on device 0: "), 0u)
      << sentence;
  EXPECT_NE(sentence.find("PyTorch"), std::string::npos) << sentence;
  EXPECT_EQ(torch.stat("refused"), 1u);
  EXPECT_EQ(thrown_by([&] { (void)torch.malloc(~std::size_t{0} - 100, main); }).find("CUDA out of memory. "),
            0u);
  torch.raw_delete(kept);
  EXPECT_NE(torch.malloc(200 * MiB, main), nullptr) << "what was kept makes room for it";
}

// L.5
TEST_P(torch_resources, reclaims_cached_memory_of_other_streams_before_it_fails) {
  torch.raw_delete(torch.malloc(150 * MiB, side));
  EXPECT_NE(torch.malloc(200 * MiB, main), nullptr);
}

// L.6
TEST_P(torch_resources, returns_all_memory_at_a_reset) {
  std::vector<void*> blocks;
  for (std::size_t i = 1; i < 40; ++i)
    blocks.push_back(torch.malloc(i * 100 * KiB, i % 2 == 0 ? side : main));
  void* const shared = torch.malloc(1 * MiB, main);
  side_waits_for_main();
  write(shared, 1 * MiB, side);
  torch.record_stream_fn(shared, side);
  blocks.push_back(shared);
  for (void* block : blocks) torch.raw_delete(block);
  EXPECT_GT(held_bytes(), 0u);
  torch.reset_fn();
  EXPECT_EQ(held_bytes(), 0u);
  EXPECT_EQ(torch.stat("used_bytes"), 0u);
  EXPECT_EQ(torch.stat("cached_bytes"), 0u);
}

// L.6
TEST_P(torch_resources, keeps_live_blocks_at_a_reset) {
  void* const live = torch.malloc(1 * MiB, main);
  torch.raw_delete(torch.malloc(1 * MiB, main));
  torch.reset_fn();
  EXPECT_TRUE(device.accessible(live, 1 * MiB));
  write(live, 1 * MiB, main);
}

// L.5
TEST_P(torch_resources, holds_no_more_than_the_fraction_of_the_device) {
  torch.memory_fraction_fn(0.25, 0);
  void* const block = torch.malloc(50 * MiB, main);
  EXPECT_NE(thrown_by([&] { (void)torch.malloc(50 * MiB, main); }).find("limit"), std::string::npos);
  torch.memory_fraction_fn(1.0, 0);
  EXPECT_NE(torch.malloc(50 * MiB, main), nullptr);
  torch.raw_delete(block);
}

// L.7
TEST_P(torch_resources, serves_threads_at_once) {
  std::vector<gpu::stream> streams;
  for (int i = 0; i < 4; ++i) streams.emplace_back(device);
  test::on_threads([&](std::size_t thread) {
    std::vector<void*> blocks;
    for (std::size_t k = 0; k < 200; ++k) {
      blocks.push_back(torch.malloc(1000 * (k % 17 + 1), k % 5 == 0 ? main : streams[thread].get()));
      if (k % 3 != 0) continue;
      torch.record_stream_fn(blocks.back(), side);
      torch.raw_delete(blocks.back());
      blocks.pop_back();
    }
    for (void* block : blocks) torch.raw_delete(block);
  });
  torch.reset_fn();
  EXPECT_EQ(torch.stat("allocations"), 800u);
  EXPECT_EQ(torch.stat("deallocations"), 800u);
  EXPECT_EQ(held_bytes(), 0u);
}

// L.13
TEST_P(torch_resources, reports_statistics_also_under_pytorchs_names) {
  (void)torch.malloc(3 * MiB, main);
  torch.raw_delete(torch.malloc(8 * MiB, main));
  EXPECT_NE(thrown_by([&] { (void)torch.malloc(1 * GiB, main); }), "");
  void* const waits = torch.malloc(1 * MiB, main);
  torch.record_stream_fn(waits, side);
  torch.raw_delete(waits);
  const std::size_t held = held_bytes();
  EXPECT_LT(held, 11 * MiB);
  EXPECT_GE(torch.stat("reserved_bytes.all.peak"), 11 * MiB);
  using row = std::pair<char const*, std::size_t>;
  for (auto const& [name, value] :
       std::initializer_list<row>{{"allocations", 3},
                                  {"deallocations", 1},
                                  {"used_blocks", 1},
                                  {"used_bytes", 3 * MiB},
                                  {"peak_bytes", 11 * MiB},
                                  {"held_bytes", held},
                                  {"streams", 1},
                                  {"allocation.all.current", 1},
                                  {"allocation.all.peak", 2},
                                  {"allocation.all.allocated", 3},
                                  {"allocation.all.freed", 2},
                                  {"allocated_bytes.all.current", 3 * MiB},
                                  {"allocated_bytes.all.peak", 11 * MiB},
                                  {"allocated_bytes.all.allocated", 12 * MiB},
                                  {"requested_bytes.all.freed", 9 * MiB},
                                  {"active.all.current", 2},
                                  {"active.all.freed", 1},
                                  {"active_bytes.all.current", 4 * MiB},
                                  {"inactive_split_bytes.all.current", held - 4 * MiB},
                                  {"reserved_bytes.all.current", held},
                                  {"num_alloc_retries", 1},
                                  {"num_ooms", 1}})
    EXPECT_EQ(torch.stat(name), value) << name;
}

// L.7
TEST_P(torch_resources, serves_each_device_from_its_own_memory) {
  test::fake_device two{{.capacity_bytes = 64 * MiB, .granularity_bytes = 64 * KiB, .devices = 2}};
  test::pluggable_allocator both{two};
  EXPECT_EQ(both.configure(GetParam(), -1, nullptr), nullptr);
  ASSERT_EQ(two.make_current(1), status::success);
  const gpu::stream on_second{two};
  void* const second = both.malloc(1 * MiB, on_second.get(), 1);
  ASSERT_EQ(two.make_current(0), status::success);
  void* const first = both.malloc(1 * MiB, nullptr, 0);
  EXPECT_TRUE(two.accessible(first, 1 * MiB, 0));
  EXPECT_TRUE(two.accessible(second, 1 * MiB, 1));
  both.raw_delete(second);  // with the other device current
  both.raw_delete(first);
  EXPECT_EQ(both.stat("deallocations", 1), 1u);
  both.reset_fn();
  EXPECT_EQ(two.outstanding, 0u);
}

// ---- choice of the resource -------------------------------------------------------------------------------

using torch_settings = torch_test;

// L.2
TEST_F(torch_settings, come_from_the_environment) {
  ::setenv("TIDEMARK_TORCH_RESOURCE", "planned", 1);
  ::setenv("TIDEMARK_TORCH_MAX_CACHED_BYTES", "0", 1);
  torch.raw_delete(torch.malloc(1 * MiB, main));
  torch.segment_free_fn(torch.segment_alloc_fn(2 * MiB, 0, main), 2 * MiB, 0, main);
  EXPECT_EQ(device.count("cuMemFree"), 1u) << "no segment is cached";
  ::unsetenv("TIDEMARK_TORCH_RESOURCE");
  ::unsetenv("TIDEMARK_TORCH_MAX_CACHED_BYTES");
  EXPECT_EQ(std::string{torch.stats(0)}.find("{\"resource\": \"planned\""), 0u);
  EXPECT_EQ(torch.stat("cached_bytes"), 0u);
}

// L.2
TEST_F(torch_settings, are_rejected_with_a_message_if_invalid) {
  ::setenv("TIDEMARK_TORCH_RESOURCE", "arena", 1);
  EXPECT_EQ(thrown_by([&] { (void)torch.malloc(1000, main); }),
            "tidemark_torch: TIDEMARK_TORCH_RESOURCE is 'arena'; it must be heap or planned");
  ::unsetenv("TIDEMARK_TORCH_RESOURCE");
  EXPECT_NE(torch.malloc(1000, main), nullptr);
}

// L.2
TEST_F(torch_settings, are_fixed_by_the_first_block) {
  EXPECT_EQ(torch.configure("heap", -1, nullptr), nullptr);
  EXPECT_EQ(torch.configure("planned", 1000, nullptr), nullptr);
  (void)torch.malloc(1000, main);
  EXPECT_STREQ(torch.configure("planned", -1, nullptr),
               "tidemark_torch: PyTorch has memory of tidemark already; choose before the first tensor");
  EXPECT_EQ(std::string{torch.stats(0)}.find("{\"resource\": \"planned\""), 0u);
}

// L.13
TEST_F(torch_settings, write_a_trace_of_every_block) {
  const std::string path = ::testing::TempDir() + "torch_trace_" + std::to_string(::getpid()) + ".csv";
  EXPECT_EQ(torch.configure("heap", -1, path.c_str()), nullptr);
  torch.raw_delete(torch.malloc(1000, main));
  (void)torch.malloc(2000, side);
  EXPECT_EQ(torch.close_trace(), nullptr);
  EXPECT_EQ(events_of(path), "op,id,bytes,thread\na,0,1000,0\nf,0,0,0\na,1,2000,0\n");
  std::remove(path.c_str());
}

TEST_F(torch_settings, name_a_trace_that_cannot_be_written) {
  EXPECT_EQ(torch.configure(nullptr, -1, "/nowhere/run.csv"), nullptr);
  const std::string sentence = thrown_by([&] { (void)torch.malloc(1000, main); });
  EXPECT_EQ(sentence.find("tidemark_torch: trace_log: cannot open /nowhere/run.csv"), 0u) << sentence;
}

// ---- misuse -----------------------------------------------------------------------------------------------

using torch_misuse = torch_test;

// L.12
TEST_F(torch_misuse, prints_a_message_for_a_block_that_is_not_live) {
  int foreign = 0;
  void* const block = torch.malloc(1000, main);
  torch.raw_delete(block);
  ::testing::internal::CaptureStderr();
  torch.free_fn(block, 1000, 0, main);
  torch.free_fn(&foreign, 1000, 7, main);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      said.find("tidemark_torch: device_pools 'PyTorch': 1000 bytes aligned to 256 are deallocated at 0x"),
      0u)
      << said;
  EXPECT_NE(said.find("tidemark_torch: free at 0x"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_EQ(torch.malloc(1000, main), block) << "it is free once";
}

TEST_F(torch_misuse, refuses_to_send_a_tensor_to_another_process) {
  void* const block = torch.malloc(1000, main);
  std::size_t bytes = 0;
  EXPECT_EQ(thrown_by([&] {
              (void)torch.base_alloc_fn(block, &bytes);
            }).find("tidemark_torch: a tensor cannot be sent to another process"),
            0u);
}

TEST_F(torch_misuse, ignores_a_stream_recorded_for_foreign_memory) {
  int foreign = 0;
  torch.record_stream_fn(&foreign, side);
  (void)torch.malloc(1000, main);
  torch.record_stream_fn(&foreign, side);
}

// ---- segments of a MemPool --------------------------------------------------------------------------------

using torch_segments = torch_test;

// L.11
TEST_F(torch_segments, return_null_without_memory_and_reuse_cached_memory) {
  void* const segment = torch.segment_alloc_fn(100 * MiB, 0, main);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(torch.segment_alloc_fn(200 * MiB, 0, main), nullptr) << "PyTorch raises its own error";
  EXPECT_EQ(torch.stat("segment_bytes"), 100 * MiB);
  torch.segment_free_fn(segment, 100 * MiB, 0, main);
  EXPECT_EQ(torch.stat("segment_bytes"), 0u);
  void* const larger = torch.segment_alloc_fn(200 * MiB, 0, main);
  EXPECT_NE(larger, nullptr);
  torch.segment_free_fn(larger, 200 * MiB, 0, main);
}

TEST_F(torch_segments, are_reused_without_a_call_to_allocate) {
  void* const segment = torch.segment_alloc_fn(2 * MiB, 0, main);
  torch.segment_free_fn(segment, 2 * MiB, 0, main);
  const std::size_t calls = device.count("cuMemAlloc");
  EXPECT_EQ(torch.segment_alloc_fn(2 * MiB, 0, side), segment);
  EXPECT_EQ(device.count("cuMemAlloc"), calls);
  torch.segment_free_fn(segment, 2 * MiB, 0, side);
}

// L.11
TEST_F(torch_segments, become_free_when_the_work_of_every_stream_has_ended) {
  void* const segment = torch.segment_alloc_fn(2 * MiB, 0, main);
  write(segment, 2 * MiB, side, "of a stream that the allocation does not name");
  torch.segment_free_fn(segment, 2 * MiB, 0, main);
  void* const again = torch.segment_alloc_fn(2 * MiB, 0, main);
  write(again, 2 * MiB, main);  // a race, without the wait
  torch.segment_free_fn(again, 2 * MiB, 0, main);
}

// L.11
TEST_F(torch_segments, can_be_allocated_during_a_capture) {
  ASSERT_EQ(device.begin_capture(main, gpu::capture_mode::global), status::success);
  void* const segment = torch.segment_alloc_fn(2 * MiB, 0, main);
  EXPECT_NE(segment, nullptr);
  gpu::graph_handle graph = nullptr;
  EXPECT_EQ(device.end_capture(main, graph), status::success);
  EXPECT_EQ(device.destroy_graph(graph), status::success);
  torch.segment_free_fn(segment, 2 * MiB, 0, main);
}

TEST_F(torch_segments, print_a_message_for_a_segment_that_is_not_live) {
  void* const segment = torch.segment_alloc_fn(2 * MiB, 0, main);
  torch.segment_free_fn(segment, 2 * MiB, 0, main);
  ::testing::internal::CaptureStderr();
  torch.segment_free_fn(segment, 2 * MiB, 0, main);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("tidemark_torch: segment_free at 0x"), 0u);
}

}  // namespace
}  // namespace tidemark::test
