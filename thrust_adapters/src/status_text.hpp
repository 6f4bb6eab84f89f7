// SPDX-License-Identifier: Apache-2.0
// What results are called where there is no driver to say so.
#pragma once

#include <tidemark/cuda/status.hpp>

namespace tidemark::cuda {

/// The name of a result, as the driver has it; "CUDA_ERROR_UNKNOWN" for those that `status` does not name.
[[nodiscard]] char const* fallback_name(status result) noexcept;
/// A few words of it.
[[nodiscard]] char const* fallback_string(status result) noexcept;

}  // namespace tidemark::cuda
