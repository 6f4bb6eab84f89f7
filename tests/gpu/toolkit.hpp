// SPDX-License-Identifier: Apache-2.0
// What the two compilers of one program each see of the CUDA toolkit.
#pragma once

namespace toolkit {

/// CUDART_VERSION in the headers that the host compiler finds.
int version_of_host_headers();

}  // namespace toolkit
