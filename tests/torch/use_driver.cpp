// SPDX-License-Identifier: Apache-2.0
// An addition to a test's copy of libtidemark_torch.so: its driver is the test's.
#include "use_driver.hpp"

#include "../../adapters/torch/src/torch/process_memory.hpp"

void tidemark_torch_test_use_driver(tidemark::gpu::driver* driver) {
  tidemark::torch::process_memory::restart();
  tidemark::gpu::set_default_driver(driver);
}
