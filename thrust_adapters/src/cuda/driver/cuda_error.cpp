// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/cuda_error.hpp>

#include <cstdio>

namespace tidemark {

cuda_error::cuda_error(gpu::driver& driver, char const* call, gpu::status result) noexcept
    : status_{result}, name_{driver.error_name(result)}, string_{driver.error_string(result)} {
  std::snprintf(call_, sizeof call_, "%s", call);
  std::snprintf(message_, sizeof message_, "%s: %s (%s)", call_, name_, string_);
}

}  // namespace tidemark
