// SPDX-License-Identifier: Apache-2.0
// Strategy: memory of a fake NCCL on a fake device, which checks that no work uses freed memory; arenas and
// planned arenas on this memory. Each call fails once.
#include <tidemark/cuda/nccl/nccl_memory.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/nccl/nccl_error.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark {
namespace {

using gpu::nccl_memory;
using gpu::nccl_status;
using test::fake_device;
using test::fake_nccl;
using nccl_arena = basic_arena<nccl_memory>;

static_assert(!nccl_memory::traits.host_accessible && !nccl_memory::traits.commits);

class nccl_memory_of_a_stream : public testing::Test {
 protected:
  fake_device device_{{.capacity_bytes = 64 * MiB}};
  gpu::stream stream_{device_};
  fake_nccl nccl_{device_};

  nccl_memory space() { return nccl_memory{{.stream = stream_}, nccl_, device_}; }
  // Work that writes a block.
  void write(void* block, std::size_t bytes, gpu::stream_handle on) {
    ASSERT_EQ(device_.launch_kernel(on, {.name = "writer",
                                         .reads = {},
                                         .writes = {{reinterpret_cast<std::uintptr_t>(block), bytes}}}),
              gpu::status::success);
  }
};

// R.10
TEST_F(nccl_memory_of_a_stream, takes_and_frees_blocks) {
  nccl_memory space = this->space();
  EXPECT_EQ(space.device(), 0);
  EXPECT_EQ(space.stream(), stream_.get());
  EXPECT_EQ(space.chunk_bytes(), 64 * MiB);
  const byte_range first = space.reserve(1, 1 * MiB), second = space.reserve(2 * MiB, 1);
  EXPECT_EQ(first.size, 1 * MiB);
  EXPECT_EQ(second.size, 2 * MiB);
  EXPECT_EQ(device_.budget(0).held_bytes(), 3 * MiB);
  EXPECT_TRUE(space.commit(first));
  EXPECT_FALSE(space.decommit(first));
  space.release(first);
  EXPECT_FALSE(device_.accessible(first.data(), 1));
  EXPECT_TRUE(device_.accessible(second.data(), second.size));
  space.release(second);
  EXPECT_EQ(nccl_.outstanding, 0u);
  EXPECT_EQ(device_.budget(0).held_bytes(), 0u);
}

TEST_F(nccl_memory_of_a_stream, frees_its_blocks_at_its_end_and_when_it_is_assigned_to) {
  {
    nccl_memory space = this->space();
    (void)space.reserve(1, 1 * MiB);
    nccl_memory other{std::move(space)};
    nccl_memory third = this->space();
    const byte_range gone = third.reserve(1, 1 * MiB);
    third = std::move(other);
    EXPECT_FALSE(device_.accessible(gone.data(), 1));
    EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
  }
  EXPECT_EQ(nccl_.count("ncclMemFree"), 2u);
}

// R.10
TEST_F(nccl_memory_of_a_stream, is_memory_of_its_device_whichever_is_current) {
  fake_device two{{.devices = 2}};
  fake_nccl nccl{two};
  nccl_memory space{{.device = 1}, nccl, two};
  const byte_range block = space.reserve(1, 1 * MiB);
  EXPECT_TRUE(two.accessible(block.data(), block.size, 1));
  EXPECT_FALSE(two.accessible(block.data(), block.size, 0));
  gpu::device_number now = 7;
  EXPECT_EQ(two.current_device(now), gpu::status::success);
  EXPECT_EQ(now, 0);
  space.release(block);
}

// R.10
TEST_F(nccl_memory_of_a_stream, waits_for_the_stream_before_it_frees) {
  nccl_memory space = this->space();
  const byte_range block = space.reserve(1, 1 * MiB);
  write(block.data(), block.size, stream_);
  space.release(block);  // the fake device fails the test if work may still use it
  EXPECT_EQ(device_.pending(stream_), 0u);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

// R.10
TEST_F(nccl_memory_of_a_stream, puts_its_stream_behind_an_event_and_behind_a_stream) {
  const gpu::stream other{device_};
  nccl_memory space = this->space();
  const byte_range block = space.reserve(1, 1 * MiB);
  write(block.data(), block.size, other);
  const gpu::event written{other, device_};
  space.wait_before_reuse(written);
  write(block.data(), block.size, stream_);
  EXPECT_EQ(gpu::put_behind(device_, other, stream_), gpu::status::success);
  write(block.data(), block.size, other);
  space.wait_before_reuse(other);
  space.release(block);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

// R.10
TEST_F(nccl_memory_of_a_stream, allocates_nothing_during_a_capture_and_frees_after_it) {
  nccl_memory space = this->space();
  const byte_range block = space.reserve(1, 1 * MiB);
  {
    const test::empty_capture graph{device_, stream_};
    EXPECT_TRUE(space.reserve(1, 1 * MiB).empty());
    EXPECT_STREQ(space.refusal(), "a stream is capturing");
    space.release(block);
    EXPECT_EQ(nccl_.count("ncclMemFree"), 0u);
  }
  EXPECT_FALSE(space.reserve(1, 1 * MiB).empty());
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

TEST_F(nccl_memory_of_a_stream, reports_an_end_during_a_capture) {
  const test::violation_recorder violations;
  byte_range block;
  gpu::graph_handle graph = nullptr;
  {
    nccl_memory space = this->space();
    block = space.reserve(1, 1 * MiB);
    ASSERT_EQ(device_.begin_capture(stream_, gpu::capture_mode::global), gpu::status::success);
  }
  ASSERT_EQ(device_.end_capture(stream_, graph), gpu::status::success) << "the capture was disturbed";
  EXPECT_EQ(violations.count(violation_kind::open_capture), 1u);
  EXPECT_EQ(device_.destroy_graph(graph), gpu::status::success);
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

// R.11
TEST_F(nccl_memory_of_a_stream, warns_of_a_block_that_nccl_does_not_free) {
  const test::warning_recorder warnings;
  nccl_memory space = this->space();
  const byte_range block = space.reserve(1, 1000);
  nccl_.fail_next("ncclMemFree", nccl_status::system_error);
  space.release(block);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_return);
  EXPECT_NE(warnings.reports()[0].message.find(
                "memory of NCCL: 1000 bytes are lost, because NCCL did not free them: ncclMemFree: "
                "ncclSystemError (a call of the system failed)"),
            std::string::npos)
      << warnings.reports()[0].message;
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

// R.11
TEST_F(nccl_memory_of_a_stream, frees_later_what_it_cannot_wait_for_now) {
  nccl_memory space = this->space();
  const byte_range block = space.reserve(1, 1 * MiB);
  device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  space.release(block);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 0u);
  space.release(space.reserve(1, 1 * MiB));
  EXPECT_EQ(nccl_.count("ncclMemFree"), 2u);
}

TEST_F(nccl_memory_of_a_stream, warns_at_its_end_of_what_it_cannot_wait_for) {
  const test::warning_recorder warnings;
  byte_range block;
  {
    nccl_memory space = this->space();
    block = space.reserve(1, 1 * MiB);
    device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  }
  EXPECT_EQ(warnings.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

// ---- no memory

// R.11
TEST_F(nccl_memory_of_a_stream, takes_half_where_the_device_has_no_more) {
  nccl_memory space = this->space();
  const byte_range range = space.reserve(1 * MiB, 128 * MiB);
  EXPECT_EQ(range.size, 64 * MiB);
  EXPECT_EQ(device_.budget(0).held_bytes(), 64 * MiB);
  space.release(range);
  EXPECT_TRUE(space.reserve(SIZE_MAX, 1).empty());
}

// R.11
TEST_F(nccl_memory_of_a_stream, throws_out_of_memory_where_nccl_has_none) {
  nccl_arena arena{nccl_memory{{.stream = stream_}, nccl_, device_}, arena_options{.reserve = 1 * MiB}};
  const arena_stats before = arena.stats();
  EXPECT_THROW((void)arena.allocate(128 * MiB), out_of_memory);
  EXPECT_STREQ(arena.space().refusal(), "");
  EXPECT_EQ(arena.stats().reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(device_.budget(0).held_bytes(), 1 * MiB);
  EXPECT_NE(arena.try_allocate(8 * MiB), nullptr);
}

// R.11
TEST_F(nccl_memory_of_a_stream, says_which_error_of_nccl_came_where_the_device_has_memory) {
  nccl_arena arena{nccl_memory{{.stream = stream_}, nccl_, device_}, arena_options{.reserve = 1 * MiB}};
  nccl_.fail_from = nccl_.calls;
  nccl_.fail_count = 2;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)arena.allocate(8 * MiB); });
  EXPECT_NE(std::string{error.what()}.find("; ncclUnhandledCudaError"), std::string::npos) << error.what();
}

// R.10
TEST_F(nccl_memory_of_a_stream, asks_for_relief_before_it_fails) {
  nccl_memory cached = this->space();
  const byte_range kept = cached.reserve(1, 60 * MiB);
  const auto asked = device_.budget(0).on_exhausted([&] {
    cached.release(kept);
    return true;
  });
  nccl_memory space = this->space();
  EXPECT_EQ(space.reserve(1, 32 * MiB).size, 32 * MiB);
}

// R.10
TEST_F(nccl_memory_of_a_stream, keeps_to_the_limit_of_its_device) {
  nccl_memory space = this->space();
  device_.budget(0).set_limit(4 * MiB);
  EXPECT_TRUE(space.reserve(8 * MiB, 8 * MiB).empty());
  EXPECT_STREQ(space.refusal(), "the limit of its device is reached");
  EXPECT_EQ(nccl_.count("ncclMemAlloc"), 0u);
  space.release(space.reserve(4 * MiB, 4 * MiB));
}

// R.11
TEST_F(nccl_memory_of_a_stream, throws_the_error_of_a_device_that_is_lost) {
  nccl_memory space = this->space();
  nccl_.fail_from = nccl_.calls;
  device_.fail_next("cuMemGetInfo", gpu::status::illegal_address);
  EXPECT_THROW((void)space.reserve(8 * MiB, 8 * MiB), cuda_error);
}

// R.11
TEST_F(nccl_memory_of_a_stream, throws_another_error_of_nccl) {
  nccl_memory space = this->space();
  nccl_.fail_next("ncclMemAlloc", nccl_status::internal_error);
  const nccl_error error = test::caught<nccl_error>([&] { (void)space.reserve(1, 1 * MiB); });
  EXPECT_STREQ(error.what(), "ncclMemAlloc: ncclInternalError (an error in NCCL)");
  EXPECT_EQ(device_.budget(0).held_bytes(), 0u);
}

// ---- arenas

// R.10
TEST_F(nccl_memory_of_a_stream, makes_no_call_in_a_step_that_repeats) {
  nccl_arena step{nccl_memory{{.stream = stream_}, nccl_, device_},
                  arena_options{.reserve = 1 * MiB, .name = "step"}};
  EXPECT_EQ(nccl_.count("ncclMemAlloc"), 1u) << "the first block comes with the arena";
  EXPECT_EQ(step.stream(), stream_.get());
  std::vector<void*> first;
  for (int i = 0; i < 10; ++i) {
    std::vector<void*> blocks;
    const auto calls = test::calls_of(device_, [&] {
      nccl_arena::scope scope{step};
      for (std::size_t bytes = 16; bytes <= 2 * MiB; bytes *= 2) blocks.push_back(step.allocate(bytes));
    });
    for (void* const block : blocks) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0u);
    if (i == 0) {
      first = blocks;
    } else {
      EXPECT_EQ(blocks, first);
      EXPECT_EQ(calls, test::call_names{});
    }
  }
  EXPECT_LE(nccl_.count("ncclMemAlloc"), 4u);
}

// R.10
TEST_F(nccl_memory_of_a_stream, holds_a_plan_in_one_block) {
  device_pool fallback{{.stream = stream_}, device_};
  basic_planned_arena<nccl_memory> memory{
      {.fallback = &fallback, .name = "step"}, gpu::nccl_memory_options{.stream = stream_}, nccl_, device_};
  std::vector<void*> planned;
  for (int i = 0; i < 5; ++i) {
    std::vector<void*> blocks;
    const auto calls = test::calls_of(device_, [&] {
      const decltype(memory)::step step{memory};
      for (int n = 0; n < 4; ++n) blocks.push_back(memory.allocate(300 * KiB));
      for (void* const block : blocks) memory.deallocate(block, 300 * KiB);
    });
    if (i == 1) planned = blocks;
    if (i < 2) continue;
    EXPECT_EQ(blocks, planned);
    EXPECT_EQ(calls, test::call_names{});
  }
  EXPECT_EQ(nccl_.count("ncclMemAlloc"), 1u);
  EXPECT_EQ(memory.stream(), stream_.get());
}

}  // namespace
}  // namespace tidemark
