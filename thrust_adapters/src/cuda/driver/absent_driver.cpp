// SPDX-License-Identifier: Apache-2.0
// Replaces system_driver.cpp in a build without a CUDA toolkit.
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {
namespace {

class absent_driver final : public driver {
 public:
  [[nodiscard]] char const* error_string(status result) noexcept override {
    if (result == status::no_device) return "tidemark was built without TIDEMARK_CUDA";
    return driver::error_string(result);
  }
};

}  // namespace

driver& system_driver() noexcept {
  static absent_driver table;
  return table;
}

}  // namespace tidemark::gpu
