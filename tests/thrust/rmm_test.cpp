// SPDX-License-Identifier: Apache-2.0
// Strategy: RMM's own library on memory of the host, which the host may read, and on synthetic addresses of a
// device: containers, adaptors and limits of RMM above resources of tidemark, and the reverse. RMM's numbers
// are compared with ours, and deallocations with allocations. The tests need no device and use none. They
// leave out the parts of RMM that call the CUDA runtime: its pools, arenas, `allocate_sync` of its adaptors,
// and copies between buffers.
#include <gtest/gtest.h>

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/epoch/epoch.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/pool/synchronized_pool.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/thrust/cuda_resource.hpp>
#include <tidemark/thrust/foreign_resource.hpp>

#include "fake_device.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "stream_turns.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::memory_access;

/// A resource of host memory presented as accessible to devices too, which RMM's containers require.
template <class R>
using shared_with_devices = cuda_resource<R, memory_access::host_and_device>;

constexpr gpu::stream_handle stream = nullptr;

/// RMM's containers get memory of each of these, and must return all of it.
template <class R>
R made_on(recording_resource& upstream) {
  if constexpr (std::is_same_v<R, arena>) return R{};
  else if constexpr (std::is_same_v<R, graph_arena>) return R{64 * KiB, &upstream};
  else if constexpr (std::is_same_v<R, pool> || std::is_same_v<R, synchronized_pool>)
    return R{{.upstream = &upstream}};
  else return R{&upstream};
}

template <class R>
class rmm_containers : public ::testing::Test {};
using resources = ::testing::Types<arena, upstream_arena, pool, synchronized_pool, epoch_resource,
                                   statistics_resource, graph_arena>;

TYPED_TEST_SUITE(rmm_containers, resources);

TYPED_TEST(rmm_containers, allocate_and_free_memory_of_tidemark) {
  recording_resource upstream;
  TypeParam memory = made_on<TypeParam>(upstream);
  {
    rmm::device_uvector<int> numbers(100, stream, shared_with_devices<TypeParam>{memory});
    rmm::device_buffer bytes(1000, stream, shared_with_devices<TypeParam>{memory});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % 256, 0u)
        << "though RMM asks for alignof(int)";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 256, 0u);
    for (int i = 0; i < 100; ++i) numbers.data()[i] = i;
    std::fill_n(static_cast<std::byte*>(bytes.data()), 1000, std::byte{7});
    EXPECT_EQ(numbers.data()[99], 99) << "they do not overlap";

    rmm::device_uvector<int> moved{std::move(numbers)};
    EXPECT_EQ(moved.data()[42], 42);
    moved.resize(10, stream);
    EXPECT_EQ(moved.size(), 10u);
    EXPECT_EQ(moved.capacity(), 100u);
  }
}

// ---- containers of RMM ------------------------------------------------------------------------------------

TEST(rmm_vector, uses_tidemark_by_default_if_set_as_the_devices_resource) {
  pool blocks;
  const rmm::cuda_device_id first_device{0};
  auto before = rmm::mr::set_per_device_resource(first_device, shared_with_devices<pool>{blocks});
  {
    rmm::device_buffer buffer(1000, stream, rmm::mr::get_per_device_resource_ref(first_device));
    EXPECT_EQ(blocks.stats().used_blocks, 1u);
  }
  (void)rmm::mr::set_per_device_resource(first_device, before);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
}

TEST(rmm_vector, a_failed_growth_loses_nothing) {
  statistics_resource counted{std::pmr::new_delete_resource()};
  limit_resource limited{&counted, 1000};
  {
    rmm::device_uvector<char> x(600, stream, shared_with_devices<limit_resource>{limited});
    EXPECT_THROW(x.reserve(900, stream), std::bad_alloc) << "both are there for a while";
    EXPECT_EQ(x.size(), 600u);
    EXPECT_EQ(counted.stats().used_blocks, 1u);
  }
  EXPECT_EQ(counted.stats().used_blocks, 0u);
}

// ---- adaptors of RMM --------------------------------------------------------------------------------------

TEST(rmm_adaptors, a_limit_of_ours_is_reported_through_rmm) {
  limit_resource limited{1000};
  rmm::mr::statistics_resource_adaptor counted{shared_with_devices<limit_resource>{limited}};
  try {
    rmm::device_buffer buffer(1001, stream, counted);
    ADD_FAILURE() << "the limit is 1000 bytes";
  } catch (out_of_memory const& error) {
    EXPECT_EQ(error.report().requested_bytes, 1001u);
  }
  EXPECT_EQ(counted.get_bytes_counter().value, 0);
  EXPECT_EQ(limited.stats().used_bytes, 0u);
}

// RMM's default is rmm::out_of_memory, which other resources do not throw.
TEST(rmm_adaptors, a_callback_for_bad_alloc_makes_room_in_ours) {
  limit_resource limited{1000};
  std::optional<rmm::device_buffer> cached{std::in_place, 800, stream,
                                           shared_with_devices<limit_resource>{limited}};
  rmm::mr::failure_callback_resource_adaptor<std::bad_alloc> retrying{
      shared_with_devices<limit_resource>{limited},
      [](std::size_t, void* of) {
        auto& spilled = *static_cast<std::optional<rmm::device_buffer>*>(of);
        const bool again = spilled.has_value();
        spilled.reset();
        return again;
      },
      &cached};
  const rmm::device_buffer buffer(600, stream, retrying);
  EXPECT_FALSE(cached.has_value());
  EXPECT_EQ(limited.stats().used_bytes, 600u);
  EXPECT_THROW(rmm::device_buffer(600, stream, retrying), out_of_memory);
}

// ---- streams of RMM's containers --------------------------------------------------------------------------

class rmm_streams : public ::testing::Test {
 protected:
  const warning_recorder warnings_;
  fake_device device_;
  stream_turns turns_{device_};
  gpu::stream own_{device_};
  gpu::stream other_{device_};
  made_up_memory nowhere_;
};

TEST_F(rmm_streams, vector_on_another_stream_is_ordered_with_the_pools_stream) {
  device_pool blocks{{.stream = own_, .upstream = &nowhere_}, device_};
  turns_.put_on(own_, "own");
  {
    rmm::device_uvector<float> x(1000, other_.get(), cuda_resource{blocks, device_});
    EXPECT_TRUE(made_up_memory::is_made_up(x.data()));
    turns_.put_on(other_, "the vector's");
  }
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
  turns_.put_on(own_, "own again");
  EXPECT_TRUE(turns_.taken().empty());
  device_.run(own_);
  EXPECT_EQ(turns_.taken(), (std::vector<std::string>{"own", "the vector's", "own again"}));
}

TEST_F(rmm_streams, vector_can_change_its_stream_before_destruction) {
  device_arena step{{.reserve = 4 * MiB}, own_.get(), device_};
  {
    rmm::device_uvector<float> x(1000, own_.get(), cuda_resource{step, device_});
    EXPECT_TRUE(step.owns(x.data()));
    x.set_stream(other_.get());
    turns_.put_on(other_, "the vector's");
  }
  turns_.put_on(own_, "own");
  device_.run(own_);
  EXPECT_EQ(turns_.taken(), (std::vector<std::string>{"the vector's", "own"}));
}

// ---- the other way: RMM below resources of tidemark -------------------------------------------------------

TEST(rmm_upstream, an_arena_allocates_its_chunks_from_rmm_and_frees_them) {
  pool host;
  rmm::mr::statistics_resource_adaptor counted{shared_with_devices<pool>{host}};
  foreign_resource upstream{counted, stream};
  {
    upstream_arena step{&upstream};
    for (int i = 0; i < 100; ++i) {
      const std::span<int> numbers = step.push_array<int>(1000);
      ASSERT_EQ(numbers.back(), 0);
      numbers.back() = i;
    }
    EXPECT_EQ(static_cast<std::size_t>(counted.get_bytes_counter().value), step.stats().committed_bytes);
    EXPECT_EQ(static_cast<std::size_t>(counted.get_allocations_counter().value), step.stats().chunks);
    EXPECT_GT(step.stats().chunks, 1u);
  }
  EXPECT_EQ(counted.get_bytes_counter().value, 0);
  EXPECT_EQ(host.stats().used_blocks, 0u);
}

TEST(rmm_upstream, an_arena_of_a_device_grows_by_chunks_of_rmm_and_serves_its_containers) {
  made_up_memory nowhere;
  rmm::mr::statistics_resource_adaptor counted{cuda_resource<made_up_memory, memory_access::device>{nowhere}};
  foreign_resource upstream{counted, stream};
  {
    upstream_device_arena step{&upstream};
    for (int i = 0; i < 10; ++i) {
      upstream_device_arena::scope scope{step};
      const rmm::device_uvector<float> x(1'000'000, stream, cuda_resource{step});
      EXPECT_TRUE(made_up_memory::is_made_up(x.data()));
      EXPECT_TRUE(step.owns(x.data()));
    }
    EXPECT_EQ(static_cast<std::size_t>(counted.get_bytes_counter().value), step.stats().committed_bytes);
    EXPECT_EQ(counted.get_allocations_counter().total, 1);
  }
  EXPECT_EQ(counted.get_bytes_counter().value, 0);
}

TEST(rmm_upstream, a_pool_of_a_device_frees_unused_memory_when_rmm_has_no_more) {
  made_up_memory nowhere;
  rmm::mr::limiting_resource_adaptor limited{cuda_resource<made_up_memory, memory_access::device>{nowhere},
                                             3 * MiB};
  foreign_resource upstream{limited, stream};
  device_pool blocks{{.device = 0, .upstream = &upstream}};
  blocks.deallocate(blocks.allocate(256), 256);
  EXPECT_EQ(limited.get_allocated_bytes(), 2 * MiB);
  void* const large = blocks.allocate(2 * MiB);
  EXPECT_EQ(limited.get_allocated_bytes(), 2 * MiB) << "the slab of small blocks went back";
  EXPECT_THROW((void)blocks.allocate(2 * MiB), rmm::out_of_memory);
  blocks.deallocate(large, 2 * MiB);
}

TEST(rmm_upstream, callback_memory_resource_is_a_valid_upstream) {
  recording_resource host;
  rmm::mr::callback_memory_resource source{
      [](std::size_t bytes, ::cuda::stream_ref, void* of) {
        return static_cast<recording_resource*>(of)->allocate(bytes, 256);
      },
      [](void* block, std::size_t bytes, ::cuda::stream_ref, void* of) {
        static_cast<recording_resource*>(of)->deallocate(block, bytes, 256);
      },
      &host, &host};
  foreign_resource upstream{source, stream};
  pool blocks{{.upstream = &upstream}};
  const std::pmr::vector<int> numbers(1000, 7, &blocks);
  EXPECT_EQ(numbers.back(), 7);
  EXPECT_GT(host.outstanding, 4000u);
}

}  // namespace
}  // namespace tidemark::test
