// SPDX-License-Identifier: Apache-2.0
#include "toolkit.hpp"

#include <cuda_runtime_api.h>

namespace toolkit {

int version_of_host_headers() { return CUDART_VERSION; }

}  // namespace toolkit
