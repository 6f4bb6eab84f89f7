// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tidemark/cuda/driver/driver.hpp>

/// Ends all memory of the library, and sets the driver of later memory; null: the system's driver.
extern "C" __attribute__((visibility("default"))) void tidemark_torch_test_use_driver(
    tidemark::gpu::driver* driver);
