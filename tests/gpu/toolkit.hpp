// SPDX-License-Identifier: Apache-2.0
// The CUDA toolkit as each of the two compilers of one program sees it.
#pragma once

namespace toolkit {

/// CUDART_VERSION in the headers that the host compiler finds.
int version_of_host_headers();

}  // namespace toolkit
