// SPDX-License-Identifier: Apache-2.0
// What the tests of the adapters run on, with each of Thrust's device systems: memory of the host where that is the
// device's, and a device's on a stream of its own with CUDA. There a test skips where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <tidemark/thrust.hpp>

#include <tidemark/arena.hpp>
#include <tidemark/units.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <optional>

#include <tidemark/cuda/device_arena.hpp>
#include <tidemark/cuda/stream.hpp>

#include "gpu_test.hpp"
#endif

namespace tidemark::test {

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

/// An arena of the memory that Thrust's device vectors lie in here.
using machine_arena = device_arena;

/// A test that needs the machine's memory.
class thrust_machine : public gpu_test {
 protected:
  void SetUp() override {
    gpu_test::SetUp();
    if (!IsSkipped()) stream_.emplace();
  }
  [[nodiscard]] machine_arena make_arena(std::size_t reserve = 64 * MiB) {
    return machine_arena{{.reserve = reserve}, stream_->get()};
  }

 private:
  std::optional<cuda::stream> stream_;
};

#else

using machine_arena = arena;

class thrust_machine : public ::testing::Test {
 protected:
  [[nodiscard]] static machine_arena make_arena(std::size_t reserve = 64 * MiB) {
    return machine_arena{{.reserve = reserve}};
  }
};

#endif

}  // namespace tidemark::test
