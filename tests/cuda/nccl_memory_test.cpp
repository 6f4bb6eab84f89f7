// SPDX-License-Identifier: Apache-2.0
// Strategy: memory of a fake NCCL on a fake device, which checks that no work uses what is freed; arenas on
// it; each call fails once. nccl_registrar_test.cpp has repeated steps and plans, and the model has addresses.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::nccl_memory;
using gpu::nccl_status;
using nccl_arena = basic_arena<nccl_memory>;

static_assert(!nccl_memory::traits.host_accessible && !nccl_memory::traits.commits);

class nccl_memory_of_a_stream : public testing::Test {
 protected:
  fake_device device_{{.capacity_bytes = 64 * MiB}};
  gpu::stream stream_{device_};
  fake_nccl nccl_{device_};

  nccl_memory made() { return nccl_memory{{.stream = stream_}, nccl_, device_}; }

  nccl_memory space_ = made();
};

TEST_F(nccl_memory_of_a_stream, allocates_and_frees_blocks) {
  EXPECT_EQ(space_.device(), 0);
  EXPECT_EQ(space_.stream(), stream_.get());
  EXPECT_EQ(space_.chunk_bytes(), 64 * MiB);
  const byte_range first = space_.reserve(1, 1 * MiB), second = space_.reserve(2 * MiB, 1);
  EXPECT_EQ(first.size, 1 * MiB);
  EXPECT_EQ(second.size, 2 * MiB);
  EXPECT_EQ(device_.budget(0).held_bytes(), 3 * MiB);
  EXPECT_TRUE(space_.commit(first));
  EXPECT_FALSE(space_.decommit(first));
  space_.release(first);
  EXPECT_FALSE(device_.accessible(first.data(), 1));
  EXPECT_TRUE(device_.accessible(second.data(), second.size));
  space_.release(second);
  EXPECT_EQ(nccl_.outstanding, 0u);
  EXPECT_EQ(device_.budget(0).held_bytes(), 0u);
}

TEST_F(nccl_memory_of_a_stream, frees_its_blocks_in_the_destructor_and_on_assignment) {
  {
    nccl_memory space = made();
    (void)space.reserve(1, 1 * MiB);
    nccl_memory other{std::move(space)};
    nccl_memory third = made();
    const byte_range gone = third.reserve(1, 1 * MiB);
    third = std::move(other);
    EXPECT_FALSE(device_.accessible(gone.data(), 1));
    EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
  }
  EXPECT_EQ(nccl_.count("ncclMemFree"), 2u);
}

TEST_F(nccl_memory_of_a_stream, allocates_on_its_own_device_if_another_device_is_current) {
  fake_device two{{.devices = 2}};
  fake_nccl nccl{two};
  nccl_memory space{{.device = 1}, nccl, two};
  const byte_range block = space.reserve(1, 1 * MiB);
  EXPECT_TRUE(two.accessible(block.data(), block.size, 1));
  EXPECT_FALSE(two.accessible(block.data(), block.size, 0));
  EXPECT_EQ(two.current_now(), 0);
  space.release(block);
}

// R.10
TEST_F(nccl_memory_of_a_stream, waits_for_the_stream_before_it_frees) {
  const byte_range block = space_.reserve(1, 1 * MiB);
  device_.write(stream_, block);
  space_.release(block);  // the fake device fails the test if work may still use it
  EXPECT_EQ(device_.pending(stream_), 0u);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

TEST_F(nccl_memory_of_a_stream, makes_its_stream_wait_for_an_event_and_for_a_stream) {
  const gpu::stream other{device_};
  const byte_range block = space_.reserve(1, 1 * MiB);
  device_.write(other, block);
  const gpu::event written{other, device_};
  space_.wait_before_reuse(written);
  device_.write(stream_, block);
  EXPECT_EQ(gpu::put_behind(device_, other, stream_), gpu::status::success);
  device_.write(other, block);
  space_.wait_before_reuse(other);
  space_.release(block);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

TEST_F(nccl_memory_of_a_stream, allocates_nothing_during_a_capture_and_frees_after_it) {
  const byte_range block = space_.reserve(1, 1 * MiB);
  {
    const test::empty_capture graph{device_, stream_};
    EXPECT_TRUE(space_.reserve(1, 1 * MiB).empty());
    EXPECT_STREQ(space_.refusal(), "a stream is capturing");
    space_.release(block);
    EXPECT_EQ(nccl_.count("ncclMemFree"), 0u);
  }
  EXPECT_FALSE(space_.reserve(1, 1 * MiB).empty());
  EXPECT_EQ(nccl_.count("ncclMemFree"), 1u);
}

TEST_F(nccl_memory_of_a_stream, reports_destruction_during_a_capture) {
  const test::violation_recorder violations;
  byte_range block;
  gpu::graph_handle graph = nullptr;
  {
    nccl_memory space = made();
    block = space.reserve(1, 1 * MiB);
    ASSERT_EQ(device_.begin_capture(stream_, gpu::capture_mode::global), gpu::status::success);
  }
  ASSERT_EQ(device_.end_capture(stream_, graph), gpu::status::success) << "the capture was disturbed";
  EXPECT_EQ(violations.count(violation_kind::open_capture), 1u);
  EXPECT_EQ(device_.destroy_graph(graph), gpu::status::success);
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

TEST_F(nccl_memory_of_a_stream, warns_about_a_block_that_nccl_does_not_free) {
  const test::warning_recorder warnings;
  const byte_range block = space_.reserve(1, 1000);
  nccl_.fail_next("ncclMemFree", nccl_status::system_error);
  space_.release(block);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_return);
  EXPECT_NE(warnings.reports()[0].message.find(
                "memory of NCCL: 1000 bytes are lost, because NCCL did not free them: ncclMemFree: "
                "ncclSystemError (a call of the system failed)"),
            std::string::npos)
      << warnings.reports()[0].message;
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

TEST_F(nccl_memory_of_a_stream, frees_a_block_later_if_its_stream_cannot_be_awaited_now) {
  const byte_range block = space_.reserve(1, 1 * MiB);
  device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  space_.release(block);
  EXPECT_EQ(nccl_.count("ncclMemFree"), 0u);
  space_.release(space_.reserve(1, 1 * MiB));
  EXPECT_EQ(nccl_.count("ncclMemFree"), 2u);
}

TEST_F(nccl_memory_of_a_stream, destructor_warns_about_a_block_that_cannot_be_awaited) {
  const test::warning_recorder warnings;
  byte_range block;
  {
    nccl_memory space = made();
    block = space.reserve(1, 1 * MiB);
    device_.fail_next("cuStreamSynchronize", gpu::status::unknown);
  }
  EXPECT_EQ(warnings.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(nccl_.free(block.begin), nccl_status::success);
}

// ---- no memory

TEST_F(nccl_memory_of_a_stream, reserves_half_if_the_device_has_too_little_memory) {
  const byte_range range = space_.reserve(1 * MiB, 128 * MiB);
  EXPECT_EQ(range.size, 64 * MiB);
  EXPECT_EQ(device_.budget(0).held_bytes(), 64 * MiB);
  space_.release(range);
  EXPECT_TRUE(space_.reserve(SIZE_MAX, 1).empty());
}

// R.11
TEST_F(nccl_memory_of_a_stream, throws_out_of_memory_if_nccl_has_no_memory) {
  nccl_arena arena{made(), arena_options{.reserve = 1 * MiB}};
  const arena_stats before = arena.stats();
  EXPECT_THROW((void)arena.allocate(128 * MiB), out_of_memory);
  EXPECT_STREQ(arena.space().refusal(), "");
  EXPECT_EQ(arena.stats().reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(device_.budget(0).held_bytes(), 1 * MiB);
  EXPECT_NE(arena.try_allocate(8 * MiB), nullptr);
}

TEST_F(nccl_memory_of_a_stream, out_of_memory_message_names_the_nccl_error) {
  nccl_arena arena{made(), arena_options{.reserve = 1 * MiB}};
  nccl_.fail_from = nccl_.calls;
  nccl_.fail_count = 2;
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)arena.allocate(8 * MiB); });
  EXPECT_NE(std::string{error.what()}.find("; ncclUnhandledCudaError"), std::string::npos) << error.what();
}

TEST_F(nccl_memory_of_a_stream, requests_relief_before_it_fails) {
  nccl_memory cached = made();
  const byte_range kept = cached.reserve(1, 60 * MiB);
  const auto asked = device_.budget(0).on_exhausted([&] {
    cached.release(kept);
    return true;
  });
  EXPECT_EQ(space_.reserve(1, 32 * MiB).size, 32 * MiB);
}

TEST_F(nccl_memory_of_a_stream, respects_the_limit_of_its_device) {
  device_.budget(0).set_limit(4 * MiB);
  EXPECT_TRUE(space_.reserve(8 * MiB, 8 * MiB).empty());
  EXPECT_STREQ(space_.refusal(), "the limit of its device is reached");
  EXPECT_EQ(nccl_.count("ncclMemAlloc"), 0u);
  space_.release(space_.reserve(4 * MiB, 4 * MiB));
}

TEST_F(nccl_memory_of_a_stream, throws_the_error_of_a_lost_device) {
  nccl_.fail_from = nccl_.calls;
  device_.fail_next("cuMemGetInfo", gpu::status::illegal_address);
  EXPECT_THROW((void)space_.reserve(8 * MiB, 8 * MiB), cuda_error);
}

// R.11
TEST_F(nccl_memory_of_a_stream, throws_nccl_error_for_other_failures) {
  nccl_.fail_next("ncclMemAlloc", nccl_status::internal_error);
  const nccl_error error = test::caught<nccl_error>([&] { (void)space_.reserve(1, 1 * MiB); });
  EXPECT_STREQ(error.what(), "ncclMemAlloc: ncclInternalError (an error in NCCL)");
  EXPECT_EQ(device_.budget(0).held_bytes(), 0u);
}

}  // namespace
}  // namespace tidemark::test
