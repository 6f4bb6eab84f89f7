// SPDX-License-Identifier: Apache-2.0
// Replaces system_driver.cpp in a build without a CUDA toolkit.
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

driver& system_driver() noexcept {
  static driver table;
  return table;
}

}  // namespace tidemark::gpu
