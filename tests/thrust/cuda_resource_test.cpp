// SPDX-License-Identifier: Apache-2.0
// Strategy: CCCL's own concepts and wrappers check that the handles satisfy them, in both generations. Host
// memory is allocated and deallocated through the handles. Streams of a fake device, each run separately,
// show that no work touches memory that other work still uses. Driver calls fail in turn. Captures that the
// adapter must not touch are ended to check this.
#include <tidemark/thrust/cuda_resource.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/telemetry.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "cuda_mr.hpp"
#include "fake_device.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "stream_turns.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::memory_access;
using gpu::status;
using mr::device_accessible;
using mr::host_accessible;
using turns = std::vector<std::string>;

constexpr gpu::stream_handle default_stream = nullptr;

// ---- requirements of CCCL ---------------------------------------------------------------------------------

/// True if CCCL accepts a handle with exactly the properties of its access.
template <class R, memory_access Access = gpu::memory_access_of<R>>
constexpr bool is_taken_as() {
  using handle = cuda_resource<R, Access>;
  constexpr bool host = Access != memory_access::device, device = Access != memory_access::host;
  return stream_ordered<handle> && std::is_copy_constructible_v<handle> &&
         std::is_copy_assignable_v<handle> && synchronous_with<handle, host_accessible> == host &&
         stream_ordered_with<handle, host_accessible> == host &&
         synchronous_with<handle, device_accessible> == device &&
         stream_ordered_with<handle, device_accessible> == device &&
         stream_ordered_with<handle, host_accessible, device_accessible> == (host && device) &&
         std::is_constructible_v<stream_ordered_ref<host_accessible>, handle&> == host &&
         std::is_constructible_v<stream_ordered_ref<device_accessible>, handle&> == device;
}
static_assert(is_taken_as<device_pool>() && is_taken_as<device_arena>() && is_taken_as<device_cache>() &&
              is_taken_as<gpu::async_resource>() && is_taken_as<gpu::device_resource>() &&
              is_taken_as<borrowed_device_arena>());
static_assert(is_taken_as<pinned_arena>() && is_taken_as<managed_arena>() &&
              is_taken_as<gpu::pinned_resource>() && is_taken_as<gpu::managed_resource>());
static_assert(is_taken_as<arena>() && is_taken_as<pool>() && is_taken_as<synchronized_pool>() &&
              is_taken_as<epoch_resource>() && is_taken_as<upstream_arena>());
static_assert(is_taken_as<graph_arena, memory_access::host>() &&
                  is_taken_as<graph_arena, memory_access::device>() &&
                  is_taken_as<std::pmr::memory_resource, memory_access::host_and_device>() &&
                  is_taken_as<statistics_resource, memory_access::device>(),
              "what a type does not tell can be said");
static_assert(is_taken_as<pool, memory_access::host_and_device>(), "and what it tells can be corrected");
static_assert(stream_ordered_with<cuda_resource<pool>, host_accessible> &&
                  !stream_ordered_with<cuda_resource<pool>, device_accessible>,
              "what this file means by it");
#if CCCL_VERSION >= 3001000
static_assert(std::is_constructible_v<mr::any_resource<device_accessible>, cuda_resource<device_pool>> &&
              std::is_constructible_v<mr::any_resource<host_accessible>, cuda_resource<arena>> &&
              !std::is_constructible_v<mr::any_resource<device_accessible>, cuda_resource<arena>>);
static_assert(std::is_convertible_v<cuda_resource<device_pool>, mr::any_resource<device_accessible>>,
              "so that it can be handed to RMM's containers as it is");
static_assert(noexcept(std::declval<cuda_resource<pool>&>().deallocate_sync(nullptr, 0, 1)));
#endif
static_assert(
    std::is_same_v<decltype(cuda_resource{std::declval<device_pool&>()}), cuda_resource<device_pool>>);

// A.8
TEST(cuda_resource_handle, is_equal_to_its_copies_and_unequal_to_handles_of_other_resources) {
  pool one, two;
  const cuda_resource memory{one};
  const cuda_resource copy{memory};
  EXPECT_TRUE(copy == memory);
  EXPECT_FALSE(copy != memory);
  const cuda_resource other{two};
  EXPECT_FALSE(other == memory);
  EXPECT_TRUE(other != memory);
  EXPECT_EQ(&copy.resource(), &one);
}

TEST(cuda_resource_handle, handles_of_one_resource_on_different_streams_are_unequal) {
  fake_device device;
  const gpu::stream stream{device};
  statistics_resource counted{std::pmr::null_memory_resource()};
  using handle = cuda_resource<statistics_resource, memory_access::device>;
  EXPECT_TRUE((handle{counted, stream} == handle{counted, stream, device}));
  EXPECT_FALSE((handle{counted, stream} == handle{counted}));
  EXPECT_FALSE((handle{counted, stream} == handle{counted, nullptr}));
}

// ---- memory of the host, through CCCL ---------------------------------------------------------------------

/// A pool on memory whose every block is on record.
class cuda_resource_of_the_host : public ::testing::Test {
 protected:
  recording_resource upstream_;
  pool pool_{{.upstream = &upstream_}};
  cuda_resource<pool> memory_{pool_};
  ::cuda::stream_ref stream_{default_stream};
};

// A.8
TEST_F(cuda_resource_of_the_host, a_ref_allocates_and_frees_memory) {
  synchronous_ref<host_accessible> ref{memory_};
  auto* const block = static_cast<std::byte*>(allocate_of(ref, 1000, 64));
  block[999] = std::byte{1};
  EXPECT_EQ(pool_.stats().used_blocks, 1u);
  deallocate_of(ref, block, 1000, 64);
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
  void* const again = allocate_of(ref, 1000, 64);
  EXPECT_EQ(again, block) << "the block came back to the pool";
  deallocate_of(ref, again, 1000, 64);
}

// A.8
TEST_F(cuda_resource_of_the_host, stream_ordered_ref_allocates_and_frees_memory) {
  stream_ordered_ref<host_accessible> ref{memory_};
  void* const block = allocate_of(ref, stream_, 1000, 64);
  EXPECT_EQ(pool_.stats().used_blocks, 1u);
  deallocate_of(ref, stream_, block, 1000, 64);
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
}

#if CCCL_VERSION >= 3001000
TEST_F(cuda_resource_of_the_host, any_resource_and_its_copies_allocate_from_one_resource) {
  mr::any_resource<host_accessible> any{memory_};
  mr::any_resource<host_accessible> copy{any};
  EXPECT_TRUE(any == copy);
  pool unlike;
  EXPECT_FALSE((any == mr::any_resource<host_accessible>{cuda_resource{unlike}}));
  void* const block = any.allocate(stream_, 1000, 64);
  EXPECT_EQ(pool_.stats().used_blocks, 1u);
  copy.deallocate(stream_, block, 1000, 64);
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
}

#endif

TEST_F(cuda_resource_of_the_host, null_is_deallocated_without_a_call) {
  memory_.deallocate(stream_, nullptr, 0);
  memory_.deallocate_sync(nullptr, 0);
  EXPECT_EQ(pool_.stats().deallocations, 0u);
}

TEST(cuda_resource_alignment, is_at_least_256_in_device_accessible_memory) {
  arena step;
  cuda_resource<arena, memory_access::host_and_device> memory{step};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.allocate_sync(4, 4)) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.allocate(default_stream, 4, 4)) % 256, 0u);
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.allocate_sync(4, 4096)) % 4096, 0u);
}

TEST(cuda_resource_alignment, is_the_requested_alignment_in_host_only_memory) {
  arena step;
  cuda_resource memory{step};
  auto* const first = static_cast<std::byte*>(memory.allocate_sync(4, 4));
  EXPECT_EQ(memory.allocate_sync(4, 4), first + 16) << "the arena's own spacing";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.allocate_sync(4)) % 256, 0u) << "the default alignment";
}

TEST(cuda_resource_alignment, blocks_are_freed_with_the_alignment_of_their_allocation) {
  recording_resource upstream;  // compares
  cuda_resource<recording_resource, memory_access::host_and_device> memory{upstream};
  memory.deallocate_sync(memory.allocate_sync(4, 4), 4, 4);
  memory.deallocate(default_stream, memory.allocate(default_stream, 4, 1024), 4, 1024);
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)memory.allocate_sync(4, 4), std::bad_alloc);
}

/// A resource that is not as it should be. It returns its own address, which is aligned as blocks are.
class alignas(256) throwing_resource final : public detail::distinct_resource {
  void* do_allocate(std::size_t, std::size_t) override { return this; }
  void do_deallocate(void*, std::size_t, std::size_t) override { throw std::runtime_error{"not taken"}; }
};

TEST(cuda_resource_failure, warns_if_the_resource_throws_in_deallocate) {
  const warning_recorder warnings;
  throwing_resource broken;
  cuda_resource<throwing_resource, memory_access::host> memory{broken};
  memory.deallocate_sync(memory.allocate_sync(1234), 1234);
  memory.deallocate(default_stream, memory.allocate(default_stream, 1234), 1234);
  ASSERT_EQ(warning_recorder::count(warning_kind::refused_return), 2u);
  EXPECT_EQ(warning_recorder::reports()[0].resource, "cuda_resource");
  EXPECT_NE(warning_recorder::reports()[0].message.find("1234 bytes"), std::string::npos);
}

// ---- streams ----------------------------------------------------------------------------------------------

/// Two streams of a fake device; resources are of `own_`.
class cuda_resource_streams : public ::testing::Test {
 protected:
  using pool_on_a_stream = cuda_resource<device_pool>;

  [[nodiscard]] pool_on_a_stream memory() { return pool_on_a_stream{pool_, device_}; }
  void put_on(gpu::stream_handle stream, char const* name) { turns_.put_on(stream, name); }
  void expect_order(turns const& expected) { EXPECT_EQ(turns_.taken(), expected); }
  [[nodiscard]] std::size_t calls() const { return device_.counts_total(); }
  void expect_no_event_left() { EXPECT_EQ(device_.count("cuEventCreate"), device_.count("cuEventDestroy")); }
  /// The capture ends with a graph, so that nothing has invalidated it.
  void during_capture_of(gpu::stream_handle stream, std::function<void()> const& body) {
    in_capture(device_, stream, gpu::capture_mode::global, body);
  }
  /// With a block that a capture must not take by itself.
  void* block_in_advance() {
    void* const block = pool_.allocate(512);
    pool_.deallocate(block, 512);
    return block;
  }
  /// A memory that was lost is named in one warning.
  void expect_lost(std::size_t bytes) {
    ASSERT_EQ(warning_recorder::count(warning_kind::refused_return), 1u);
    EXPECT_EQ(warning_recorder::reports()[0].resource, "cuda_resource");
    EXPECT_NE(warning_recorder::reports()[0].message.find(std::to_string(bytes) + " bytes"),
              std::string::npos);
  }

  const warning_recorder warnings_;
  fake_device device_;
  stream_turns turns_{device_};
  gpu::stream own_{device_};
  gpu::stream other_{device_};
  made_up_memory nowhere_;
  recording_resource upstream_{&nowhere_};
  device_pool pool_{{.stream = own_, .upstream = &upstream_}, device_};
};

TEST_F(cuda_resource_streams, makes_no_driver_call_on_the_stream_of_the_resource) {
  (void)block_in_advance();
  const std::size_t before = calls();
  void* const block = memory().allocate(own_.get(), 512);
  memory().deallocate(own_.get(), block, 512);
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(memory().allocate(own_.get(), 512), block);
}

// A.9
TEST_F(cuda_resource_streams, work_of_another_stream_waits_for_work_of_the_resource_stream) {
  put_on(own_, "uses the block that was deallocated");
  (void)memory().allocate(other_.get(), 512);
  put_on(other_, "uses it next");
  device_.run(other_);
  expect_order({"uses the block that was deallocated", "uses it next"});
  expect_no_event_left();
}

TEST_F(cuda_resource_streams, resource_stream_does_not_wait_for_the_allocating_stream) {
  put_on(other_, "other");
  (void)memory().allocate(other_.get(), 512);
  put_on(own_, "own");
  device_.run(own_);
  expect_order({"own"});
  device_.run_all();
}

// A.9
TEST_F(cuda_resource_streams, resource_stream_waits_for_the_work_of_the_freeing_stream) {
  void* const block = memory().allocate(other_.get(), 512);
  put_on(other_, "uses the block");
  memory().deallocate(other_.get(), block, 512);
  EXPECT_EQ(pool_.allocate(512), block) << "the block may be reused at once";
  put_on(own_, "uses it next");
  device_.run(own_);
  expect_order({"uses the block", "uses it next"});
  expect_no_event_left();
}

TEST_F(cuda_resource_streams, block_of_a_driver_pool_is_freed_after_the_work_of_the_other_stream) {
  gpu::memory_pool blocks{{}, device_};
  gpu::async_resource of_the_driver{blocks.get(), own_, device_};
  cuda_resource memory{of_the_driver, device_};
  void* const block = memory.allocate(other_.get(), 512);
  put_on(other_, "uses the block");
  memory.deallocate(other_.get(), block, 512);
  put_on(own_, "after the free");
  device_.run(own_);
  expect_order({"uses the block", "after the free"});
}

TEST_F(cuda_resource_streams, cache_delays_reuse_without_a_wait_of_its_stream) {
  device_cache tensors{{.stream = own_, .upstream = &upstream_}, device_};
  cuda_resource memory{tensors, device_};
  void* const block = memory.allocate(other_.get(), 512);
  put_on(other_, "uses the block");
  memory.deallocate(other_.get(), block, 512);
  put_on(own_, "uses another");
  void* const another = tensors.allocate(512);
  EXPECT_NE(another, block) << "the old block is in use";
  device_.run(own_);
  expect_order({"uses another"});
  device_.run(other_);
  EXPECT_EQ(tensors.allocate(512), block) << "the old block is free now";
  tensors.deallocate(block, 512);
  tensors.deallocate(another, 512);
}

TEST_F(cuda_resource_streams, cache_frees_on_its_own_stream_after_one_capture_query) {
  device_cache tensors{{.stream = own_, .upstream = &upstream_}, device_};
  cuda_resource memory{tensors, device_};
  void* const block = memory.allocate(own_.get(), 512);
  const std::size_t before = calls();
  const std::size_t asked = device_.count("cuStreamIsCapturing");
  memory.deallocate(own_.get(), block, 512);
  EXPECT_EQ(calls(), before + 1);
  EXPECT_EQ(device_.count("cuStreamIsCapturing"), asked + 1);
  EXPECT_EQ(memory.allocate(own_.get(), 512), block);
  memory.deallocate(own_.get(), block, 512);
}

// ---- calls that name no stream ----------------------------------------------------------------------------

TEST_F(cuda_resource_streams, allocate_sync_waits_for_the_resource_stream) {
  put_on(own_, "uses the block that was deallocated");
  put_on(other_, "other");
  void* const block = memory().allocate_sync(512);
  expect_order({"uses the block that was deallocated"});
  const std::size_t before = calls();
  memory().deallocate_sync(block, 512);
  EXPECT_EQ(calls(), before) << "no work uses it any more";
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
  device_.run_all();
}

TEST_F(cuda_resource_streams, reports_the_error_of_failed_work_and_allocates_nothing) {
  device_.fail_next("cuStreamSynchronize", status::illegal_address);
  const cuda_error error = test::caught<cuda_error>([&] { (void)memory().allocate_sync(512); });
  EXPECT_EQ(error.status(), status::illegal_address);
  EXPECT_STREQ(error.call(), "cuStreamSynchronize");
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
}

TEST_F(cuda_resource_streams, does_not_wait_for_a_captured_stream) {
  (void)block_in_advance();
  during_capture_of(own_, [&] {
    const cuda_error error = test::caught<cuda_error>([&] { (void)memory().allocate_sync(512); });
    EXPECT_EQ(error.status(), status::capture_unsupported);
    EXPECT_EQ(pool_.stats().used_blocks, 0u);
  });
}

// ---- refusals of the driver -------------------------------------------------------------------------------

TEST_F(cuda_resource_streams, allocates_nothing_if_streams_cannot_be_ordered) {
  (void)block_in_advance();
  const std::size_t begun = device_.calls;
  pool_.deallocate(memory().allocate(other_.get(), 512), 512);
  const std::size_t driver_calls = device_.calls - begun;
  ASSERT_EQ(driver_calls, 7u);
  for (std::size_t i = 0; i < driver_calls; ++i) {
    SCOPED_TRACE(::testing::Message() << "call " << i << " fails");
    device_.failure = status::unknown;
    device_.fail_from = device_.calls + i;
    const cuda_error error = test::caught<cuda_error>([&] { (void)memory().allocate(other_.get(), 512); });
    EXPECT_EQ(error.status(), status::unknown);
    EXPECT_STREQ(error.call(), "cuStreamWaitEvent");
    device_.fail_from = supply::never;
    EXPECT_EQ(pool_.stats().used_blocks, 0u);
  }
  device_.run_all();
}

TEST_F(cuda_resource_streams, leaks_and_warns_about_a_block_that_other_work_may_use) {
  void* const block = memory().allocate(other_.get(), 512);
  device_.fail_next("cuEventRecord", status::unknown);
  memory().deallocate(other_.get(), block, 512);
  EXPECT_EQ(pool_.stats().used_blocks, 1u);
  EXPECT_NE(pool_.allocate(512), block);
  expect_lost(512);
  EXPECT_NE(warning_recorder::reports()[0].message.find("CUDA_ERROR_UNKNOWN"), std::string::npos);
}

TEST_F(cuda_resource_streams, returns_blocks_without_a_warning_on_a_lost_device) {
  void* const block = memory().allocate(other_.get(), 512);
  device_.fail_next("cuEventCreate", status::illegal_address);
  memory().deallocate(other_.get(), block, 512);
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
  EXPECT_TRUE(warning_recorder::reports().empty());
}

TEST_F(cuda_resource_streams, makes_no_driver_call_if_the_resource_is_exhausted) {
  upstream_.fail_from = upstream_.calls;
  upstream_.fail_count = supply::never;
  const std::size_t before = calls();
  EXPECT_THROW((void)memory().allocate(other_.get(), 512), std::bad_alloc);
  EXPECT_THROW((void)memory().allocate_sync(512), std::bad_alloc);
  EXPECT_EQ(calls(), before);
}

// ---- captures ---------------------------------------------------------------------------------------------

// A.10
TEST_F(cuda_resource_streams, foreign_capture_gets_no_memory_and_stays_valid) {
  (void)block_in_advance();
  during_capture_of(other_, [&] {
    const cuda_error error = test::caught<cuda_error>([&] { (void)memory().allocate(other_.get(), 512); });
    EXPECT_EQ(error.status(), status::capture_isolation);
    EXPECT_EQ(pool_.stats().used_blocks, 0u);
  });
}

TEST_F(cuda_resource_streams, leaks_memory_freed_in_a_foreign_capture) {
  void* const block = memory().allocate(other_.get(), 512);
  during_capture_of(other_, [&] {
    memory().deallocate(other_.get(), block, 512);
    EXPECT_EQ(pool_.stats().used_blocks, 1u);
    expect_lost(512);
  });
}

TEST_F(cuda_resource_streams, work_outside_a_capture_gets_no_memory_and_stays_outside) {
  (void)block_in_advance();
  during_capture_of(own_, [&] {
    EXPECT_THROW((void)memory().allocate(other_.get(), 512), cuda_error);
    EXPECT_EQ(pool_.stats().used_blocks, 0u);
    bool captured = true;
    EXPECT_EQ(device_.is_capturing(other_, captured), status::success);
    EXPECT_FALSE(captured);
  });
}

TEST_F(cuda_resource_streams, capture_allocates_on_its_own_stream_without_a_call) {
  void* const block = block_in_advance();
  during_capture_of(own_, [&] {
    EXPECT_EQ(memory().allocate(own_.get(), 512), block);
    memory().deallocate(own_.get(), block, 512);
    EXPECT_TRUE(device_.calls_during_capture().empty());
  });
}

// ---- resources of a type without a stream -----------------------------------------------------------------

TEST_F(cuda_resource_streams, an_adaptor_has_the_given_stream) {
  statistics_resource counted{&pool_};
  cuda_resource<statistics_resource, memory_access::device> memory{counted, own_, device_};
  put_on(own_, "own");
  void* const block = memory.allocate(other_.get(), 512);
  put_on(other_, "other");
  memory.deallocate(other_.get(), block, 512);
  expect_order({});
  put_on(own_, "own again");
  device_.run(own_);
  expect_order({"own", "other", "own again"});
  put_on(own_, "at last");
  void* const any = memory.allocate_sync(512);
  expect_order({"own", "other", "own again", "at last"});
  memory.deallocate_sync(any, 512);
}

// ---- resources of no stream -------------------------------------------------------------------------------

/// One that devices may use, such as managed memory in a pool.
class cuda_resource_of_no_stream : public cuda_resource_streams {
 protected:
  pool shared_;
  cuda_resource<pool, memory_access::host_and_device> managed_{shared_, device_};
};

TEST_F(cuda_resource_of_no_stream, memory_is_freed_when_the_named_streams_work_has_ended) {
  void* const block = managed_.allocate(other_.get(), 512);
  put_on(other_, "uses the block");
  put_on(own_, "does not");
  managed_.deallocate(other_.get(), block, 512);
  expect_order({"uses the block"});
  EXPECT_EQ(shared_.stats().used_blocks, 0u);
  device_.run_all();
}

TEST_F(cuda_resource_of_no_stream, memory_is_allocated_without_a_call) {
  const std::size_t before = calls();
  (void)managed_.allocate(other_.get(), 512);
  (void)managed_.allocate_sync(512);
  EXPECT_EQ(calls(), before);
  shared_.release();
}

TEST_F(cuda_resource_of_no_stream, memory_of_the_host_alone_is_freed_at_once) {
  cuda_resource of_the_host{shared_, device_};
  void* const block = of_the_host.allocate(other_.get(), 512);
  put_on(other_, "does not use the block");
  const std::size_t before = calls();
  of_the_host.deallocate(other_.get(), block, 512);
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(shared_.stats().used_blocks, 0u);
  device_.run_all();
}

TEST_F(cuda_resource_of_no_stream, does_not_wait_for_a_capture_and_keeps_the_capture_valid) {
  void* const block = managed_.allocate(other_.get(), 512);
  during_capture_of(other_, [&] {
    managed_.deallocate(other_.get(), block, 512);
    EXPECT_EQ(shared_.stats().used_blocks, 0u);
    EXPECT_EQ(device_.count("cuStreamSynchronize"), 0u);
    EXPECT_TRUE(warning_recorder::reports().empty());
  });
}

TEST_F(cuda_resource_of_no_stream, leaks_a_block_whose_work_cannot_be_awaited) {
  for (char const* const refused : {"cuStreamIsCapturing", "cuStreamSynchronize"}) {
    SCOPED_TRACE(refused);
    warning_recorder::reports().clear();
    void* const block = managed_.allocate(other_.get(), 512);
    device_.fail_next(refused, status::unknown);
    managed_.deallocate(other_.get(), block, 512);
    EXPECT_EQ(shared_.stats().used_blocks, 1u);
    expect_lost(512);
    managed_.deallocate_sync(block, 512);
  }
}

TEST_F(cuda_resource_of_no_stream, a_block_is_freed_if_its_work_has_failed) {
  void* const block = managed_.allocate(other_.get(), 512);
  device_.fail_next("cuStreamSynchronize", status::illegal_address);
  managed_.deallocate(other_.get(), block, 512);
  EXPECT_EQ(shared_.stats().used_blocks, 0u);
  EXPECT_TRUE(warning_recorder::reports().empty());
}

TEST(cuda_resource_without_a_device, deallocates_without_a_wait) {
  const warning_recorder warnings;
  fake_device none{{.devices = 0}};
  auto* const any_stream = reinterpret_cast<gpu::stream_handle>(std::uintptr_t{0x1000});
  pool shared;
  cuda_resource<pool, memory_access::host_and_device> managed{shared, none};
  managed.deallocate(any_stream, managed.allocate(any_stream, 512), 512);
  EXPECT_EQ(shared.stats().used_blocks, 0u);

  made_up_memory nowhere;
  device_pool pool_of_a_device{{.device = 0, .upstream = &nowhere}, none};
  cuda_resource memory{pool_of_a_device, none};
  memory.deallocate(any_stream, memory.allocate(any_stream, 512), 512);
  memory.deallocate_sync(memory.allocate_sync(512), 512);
  EXPECT_EQ(pool_of_a_device.stats().used_blocks, 0u);
  EXPECT_TRUE(warning_recorder::reports().empty());
}

// ---- the names of CCCL 3.0 --------------------------------------------------------------------------------

TEST_F(cuda_resource_streams, before_3_1_allocate_is_for_any_work) {
  put_on(own_, "own");
  void* const block = memory().allocate(512);
  expect_order({"own"});
  void* const aligned = memory().allocate(512, 1024);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 1024, 0u);
  const std::size_t before = calls();
  memory().deallocate(block, 512);
  memory().deallocate(aligned, 512, 1024);
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
}

TEST_F(cuda_resource_streams, before_3_1_allocate_async_is_for_the_work_of_a_stream) {
  put_on(own_, "own");
  void* const block = memory().allocate_async(512, other_.get());
  void* const aligned = memory().allocate_async(512, 1024, other_.get());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 1024, 0u);
  put_on(other_, "other");
  memory().deallocate_async(block, 512, other_.get());
  memory().deallocate_async(aligned, 512, 1024, other_.get());
  put_on(own_, "own again");
  device_.run(own_);
  expect_order({"own", "other", "own again"});
  EXPECT_EQ(pool_.stats().used_blocks, 0u);
}

}  // namespace
}  // namespace tidemark::test
