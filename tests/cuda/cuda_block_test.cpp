// SPDX-License-Identifier: Apache-2.0
// Strategy: blocks of each kind on a fake device, whose blocks are aligned to exactly 256 bytes. Requests to
// the resource are compared with allocations of the device. The conformance suite tests the common behaviour
// of resources.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::block_kind;
using gpu::status;

char const* allocating_call(block_kind kind) {
  return kind == block_kind::device   ? "cuMemAlloc"
         : kind == block_kind::pinned ? "cuMemHostAlloc"
                                      : "cuMemAllocManaged";
}
char const* freeing_call(block_kind kind) {
  return kind == block_kind::pinned ? "cuMemFreeHost" : "cuMemFree";
}

template <class Kind>
class cuda_block_resource : public ::testing::Test {
 protected:
  static constexpr block_kind kind = Kind::value;
  using resource = gpu::block_resource<kind>;

  fake_device device_;
  resource memory_{device_};
};

template <class Kind>
class cuda_block_memory : public ::testing::Test {
 protected:
  static constexpr block_kind kind = Kind::value;
  using memory = gpu::basic_block_memory<kind>;

  fake_device device_;
};

template <block_kind Kind>
using of = std::integral_constant<block_kind, Kind>;
using kinds = ::testing::Types<of<block_kind::device>, of<block_kind::pinned>, of<block_kind::managed>>;
TYPED_TEST_SUITE(cuda_block_resource, kinds);
TYPED_TEST_SUITE(cuda_block_memory, kinds);

// ---- block_resource ----

TYPED_TEST(cuda_block_resource, allocates_and_deallocates_with_one_driver_call_each) {
  void* block = nullptr;
  EXPECT_EQ(calls_of(this->device_, [&] { block = this->memory_.allocate(1000); }),
            (call_names{"cuCtxGetDevice", allocating_call(this->kind)}));
  EXPECT_EQ(this->device_.outstanding, 1000u);
  EXPECT_TRUE(this->device_.accessible(block, 1000));
  EXPECT_EQ(calls_of(this->device_, [&] { this->memory_.deallocate(block, 1000); }),
            (call_names{"cuCtxGetDevice", freeing_call(this->kind)}));
  EXPECT_EQ(this->device_.outstanding, 0u);
}

TYPED_TEST(cuda_block_resource, exhausted_device_throws_out_of_memory_and_counts_one_refusal) {
  void* const held = this->memory_.allocate(1000);
  const resource_stats before = this->memory_.stats();
  this->device_.fail_next(allocating_call(this->kind));
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)this->memory_.allocate(100, 1024); });
  EXPECT_STREQ(error.report().resource, this->memory_.name());
  EXPECT_EQ(error.report().requested_bytes, 100u);
  EXPECT_EQ(error.report().alignment, 1024u);
  EXPECT_EQ(error.report().used_bytes, 1000u);
  EXPECT_THROW((void)this->memory_.allocate(SIZE_MAX), out_of_memory);
  EXPECT_THROW((void)this->memory_.allocate(1, ~(SIZE_MAX / 2)), out_of_memory);
  resource_stats after = this->memory_.stats();
  EXPECT_EQ(after.refused, 3u);
  EXPECT_EQ(after.used_blocks, before.used_blocks);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
  this->memory_.deallocate(held, 1000);
}

TYPED_TEST(cuda_block_resource, other_driver_failures_throw_cuda_error) {
  this->device_.fail_next(allocating_call(this->kind), status::illegal_address);
  const cuda_error error = test::caught<cuda_error>([&] { (void)this->memory_.allocate(100); });
  EXPECT_STREQ(error.call(), allocating_call(this->kind));
  EXPECT_EQ(this->memory_.stats().refused, 1u);
}

TYPED_TEST(cuda_block_resource, rejects_an_invalid_alignment_with_a_message) {
  const std::invalid_argument error =
      test::caught<std::invalid_argument>([&] { (void)this->memory_.allocate(1, 24); });
  EXPECT_EQ(std::string(error.what()),
            std::string("block_resource '") + this->memory_.name() + "': alignment 24 is not a power of two");
}

TYPED_TEST(cuda_block_resource, foreign_blocks_are_reported_and_not_freed) {
  if (check_level == 0) GTEST_SKIP() << "level 0 knows no blocks";
  const test::violation_recorder violations;
  void* const block = this->memory_.allocate(1000);
  this->memory_.deallocate(block, 999);
  this->memory_.deallocate(static_cast<std::byte*>(block) + 256, 1000);
  this->memory_.deallocate(block, 1000);
  this->memory_.deallocate(block, 1000);
  EXPECT_EQ(violations.count(violation_kind::bad_deallocate), 3u);
  this->memory_.deallocate(nullptr, 1);
  EXPECT_EQ(violations.count(violation_kind::bad_deallocate), 3u) << "null is no block, of whatever size";
  EXPECT_EQ(this->device_.count(freeing_call(this->kind)), 1u);
}

TYPED_TEST(cuda_block_resource, reports_a_block_that_the_driver_does_not_free) {
  const test::warning_recorder warnings;
  void* const block = this->memory_.allocate(1000);
  this->device_.fail_next(freeing_call(this->kind), status::illegal_address);
  this->memory_.deallocate(block, 1000);
  ASSERT_EQ(warnings.reports().size(), 1u);
  EXPECT_EQ(warnings.reports()[0].kind, warning_kind::refused_return);
  EXPECT_EQ(warnings.reports()[0].message,
            std::string(this->memory_.name()) +
                ": 1000 bytes are lost, because the driver did not free them: " + freeing_call(this->kind) +
                ": CUDA_ERROR_ILLEGAL_ADDRESS (illegal memory access)");
  const auto lost = reinterpret_cast<std::uintptr_t>(block);
  EXPECT_EQ(this->kind == block_kind::pinned ? this->device_.free_pinned(lost) : this->device_.free(lost),
            status::success);
}

TYPED_TEST(cuda_block_resource, live_blocks_are_reported_at_level_2) {
  if (check_level < 2) GTEST_SKIP() << "level 2 reports them";
  const test::violation_recorder violations;
  void* block = nullptr;
  {
    typename TestFixture::resource memory{{.name = "leaky"}, this->device_};
    block = memory.allocate(1000);
  }
  EXPECT_EQ(violations.count(violation_kind::leak), 1u);
  const auto lost = reinterpret_cast<std::uintptr_t>(block);
  EXPECT_EQ(this->kind == block_kind::pinned ? this->device_.free_pinned(lost) : this->device_.free(lost),
            status::success);
}

TEST(cuda_device_resource, out_of_memory_message_states_the_free_device_memory) {
  fake_device device{{.capacity_bytes = 1 * MiB}};
  gpu::device_resource memory{device};
  void* const block = memory.allocate(1000 * KiB);
  EXPECT_EQ(message_of<out_of_memory>([&] { (void)memory.allocate(100 * KiB); }),
            "device memory: out of memory: 102400 bytes aligned to 256 requested, 1024000 used of 1024000 "
            "committed and 1024000 reserved; the largest that would fit is 24576 bytes; the device memory is "
            "exhausted: free some, or return the part that caches keep (relieve)");
  memory.deallocate(block, 1000 * KiB);
}

TEST(cuda_device_resource, allocates_on_its_own_device_if_another_device_is_current) {
  fake_device device{{.devices = 2}};
  gpu::device_resource memory{{.device = 1}, device};
  void* const block = memory.allocate(1000);
  gpu::memory_info first, second;
  ASSERT_EQ(device.memory(first), status::success);
  ASSERT_EQ(device.make_current(1), status::success);
  ASSERT_EQ(device.memory(second), status::success);
  EXPECT_EQ(first.free_bytes, first.total_bytes);
  EXPECT_LT(second.free_bytes, second.total_bytes);
  memory.deallocate(block, 1000);
}

TEST(cuda_device_resource, throws_out_of_memory_if_no_context_can_be_created) {
  fake_device device;
  device.fail_next("cuCtxGetDevice");
  EXPECT_THROW(gpu::device_resource{device}, out_of_memory);
}

// S1.37
TEST(cuda_pinned_resource, returns_uninitialised_host_blocks_aligned_to_64) {
  fake_device device;
  gpu::pinned_resource memory{device};
  {
    std::pmr::vector<float> staged(1000, 1.5f, &memory);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staged.data()) % 64, 0u);
    EXPECT_EQ(staged[999], 1.5f);
  }
  auto* const block = static_cast<unsigned char*>(memory.allocate(1000));
  EXPECT_EQ(block[500], 0xEE) << "the fake device's fill value";
  memory.deallocate(block, 1000);
}

// ---- block_memory ----

TYPED_TEST(cuda_block_memory, serves_one_block_at_a_time) {
  typename TestFixture::memory space{1 * MiB, this->device_};
  EXPECT_EQ(space.chunk_bytes(), 1 * MiB);
  const byte_range block = space.reserve(1, 1000);
  EXPECT_EQ(block.size, 1000u);
  EXPECT_EQ(this->device_.count(allocating_call(this->kind)), 1u);
  EXPECT_TRUE(space.reserve(1, 1).empty());
  space.release(block);
  EXPECT_EQ(this->device_.outstanding, 0u);
  EXPECT_EQ(space.reserve(2000, 1000).size, 2000u);
}

TYPED_TEST(cuda_block_memory, frees_its_block_in_the_destructor_and_on_assignment) {
  {
    typename TestFixture::memory space{1 * MiB, this->device_};
    (void)space.reserve(1, 1000);
    typename TestFixture::memory other{std::move(space)};
    EXPECT_EQ(this->device_.outstanding, 1000u);
    typename TestFixture::memory third{2 * MiB, this->device_};
    (void)third.reserve(1, 3000);
    third = std::move(other);
    EXPECT_EQ(this->device_.outstanding, 1000u);
    EXPECT_EQ(third.chunk_bytes(), 1 * MiB);
  }
  EXPECT_EQ(this->device_.outstanding, 0u);
}

TYPED_TEST(cuda_block_memory, returns_an_empty_range_without_memory_and_throws_on_other_errors) {
  typename TestFixture::memory space{1 * MiB, this->device_};
  EXPECT_TRUE(space.reserve(SIZE_MAX, 1).empty());
  this->device_.fail_next(allocating_call(this->kind));
  EXPECT_TRUE(space.reserve(1, 1).empty());
  this->device_.fail_next("cuCtxGetDevice");
  EXPECT_TRUE(space.reserve(1, 1).empty());
  this->device_.fail_next(allocating_call(this->kind), status::not_supported);
  EXPECT_THROW((void)space.reserve(1, 1), cuda_error);
  EXPECT_FALSE(space.reserve(1, 1).empty());
}

TYPED_TEST(cuda_block_memory, allocates_its_block_from_one_device) {
  fake_device device{{.devices = 2}};
  typename TestFixture::memory space{1 * MiB, device};
  ASSERT_EQ(device.make_current(1), status::success);
  space.release(space.reserve(1, 1000));
  ASSERT_EQ(device.make_current(0), status::success);
  const byte_range block = space.reserve(1, 1000);
  EXPECT_EQ(device.count("cudaSetDevice"), 3u) << "there, besides those of the test";
  EXPECT_EQ(device.count("cuCtxSetCurrent"), 1u) << "restores the context";
  space.release(block);
}

TYPED_TEST(cuda_block_memory, waits_for_an_event_in_the_calling_thread) {
  const gpu::stream copies{this->device_};
  typename TestFixture::memory space{1 * MiB, this->device_};
  const test::noting_work copy{this->device_, copies};
  const gpu::event copied{copies, this->device_};
  space.wait_before_reuse(copied);
  EXPECT_TRUE(copy.has_run);
}

}  // namespace
}  // namespace tidemark::test
