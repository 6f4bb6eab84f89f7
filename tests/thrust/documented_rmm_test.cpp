// SPDX-License-Identifier: Apache-2.0
// Strategy: the code of docs/thrust.md for RMM, word for word; documented_thrust_test.cpp has the rest. It
// runs without a device, on synthetic addresses: no test accesses the memory.
#include <gtest/gtest.h>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <tidemark/arena/arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/thrust/cuda_resource.hpp>
#include <tidemark/thrust/foreign_resource.hpp>

#include "made_up_memory.hpp"

namespace {

using tidemark::test::made_up_memory;
using of_a_device = tidemark::cuda_resource<made_up_memory, tidemark::gpu::memory_access::device>;

constexpr tidemark::gpu::stream_handle stream = nullptr;

TEST(documented_for_rmm, rmm_vectors_use_an_arena) {
  made_up_memory nowhere;
  tidemark::upstream_device_arena step{&nowhere};
  {
    tidemark::upstream_device_arena::scope scope{step};
    rmm::device_uvector<float> x(1000, stream, tidemark::cuda_resource{step});
    EXPECT_TRUE(step.owns(x.data()));
  }
  EXPECT_EQ(step.position(), 0u);
}

TEST(documented_for_rmm, rmm_resources_are_upstreams_and_our_adaptors_serve_rmm) {
  made_up_memory nowhere;
  rmm::mr::statistics_resource_adaptor device{of_a_device{nowhere}};
  {
    tidemark::foreign_resource upstream{device, stream};
    tidemark::device_pool blocks{{.stream = stream, .device = 0, .upstream = &upstream}};
    tidemark::statistics_resource counted{&blocks};
    tidemark::cuda_resource<tidemark::statistics_resource, tidemark::gpu::memory_access::device> memory{
        counted, stream};
    rmm::device_uvector<float> x(1000, stream, memory);
    EXPECT_EQ(counted.stats().used_blocks, 1u);
    EXPECT_GT(device.get_bytes_counter().value, 0);
  }
  EXPECT_EQ(device.get_bytes_counter().value, 0);
}

}  // namespace
