// SPDX-License-Identifier: Apache-2.0
// The memory of the adapters' tests, with each of Thrust's device systems: host memory if it is the device's,
// and with CUDA a device's memory on its own stream. With CUDA a test skips without a device.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>

#include <tidemark/thrust.hpp>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "gpu_test.hpp"
#else
#include <tidemark/pool/pool.hpp>
#endif

// A release on a compiler's own path would be tested twice, and the other release never.
#if defined(TIDEMARK_TEST_CCCL_VERSION)
static_assert(CCCL_VERSION == TIDEMARK_TEST_CCCL_VERSION,
              "these are the headers of another CCCL than was meant");
#endif

namespace tidemark::test {

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

/// An arena of the memory that Thrust's device vectors lie in here.
using machine_arena = device_arena;
/// A pool of such memory.
using machine_pool = device_pool;
/// Arenas of memory that host and device may touch, and of memory of the host that devices copy from fast.
using shared_arena = managed_arena;
using staging_arena = pinned_arena;
/// A borrowed range of such memory as an arena.
using borrowed_machine_arena = borrowed_device_arena;
using borrowed_machine_memory = borrowed_device_memory;

/// A test that needs the machine's memory.
class thrust_machine : public gpu_test {
 protected:
  void SetUp() override {
    gpu_test::SetUp();
    if (IsSkipped()) return;
    stream_.emplace();
    memory_.emplace();
  }
  [[nodiscard]] machine_arena make_arena(std::size_t reserve = 64 * MiB) {
    return machine_arena{{.reserve = reserve}, stream_->get()};
  }
  [[nodiscard]] machine_pool make_pool() { return machine_pool{{.stream = stream_->get()}}; }
  /// Memory of the driver, or the system: each block is one call.
  [[nodiscard]] std::pmr::memory_resource& memory() { return *memory_; }
  [[nodiscard]] gpu::stream_handle stream() const { return stream_->get(); }
  /// Until all work is done.
  void wait() { EXPECT_EQ(gpu::default_driver().synchronize(stream()), gpu::status::success); }

 private:
  std::optional<gpu::stream> stream_;
  std::optional<gpu::device_resource> memory_;
};

#else

using machine_arena = arena;
using machine_pool = pool;
using shared_arena = arena;
using staging_arena = arena;
using borrowed_machine_arena = borrowed_arena;
using borrowed_machine_memory = borrowed_memory;

class thrust_machine : public ::testing::Test {
 protected:
  [[nodiscard]] static machine_arena make_arena(std::size_t reserve = 64 * MiB) {
    return machine_arena{{.reserve = reserve}};
  }
  [[nodiscard]] static machine_pool make_pool() { return machine_pool{}; }
  [[nodiscard]] static std::pmr::memory_resource& memory() { return *std::pmr::new_delete_resource(); }
  [[nodiscard]] static gpu::stream_handle stream() { return nullptr; }
  static void wait() {}
};

#endif

}  // namespace tidemark::test
