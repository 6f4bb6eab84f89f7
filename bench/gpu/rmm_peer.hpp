// SPDX-License-Identifier: Apache-2.0
// RMM's pool as a peer, in its own source: it is built with RMM's headers, or without any.
#pragma once

#include <cstddef>
#include <vector>

namespace tidemark::test {

/// Returns sorted nanoseconds per block of `steps` steps that take `batch` blocks of RMM's pool and return
/// them. Empty if RMM is not built in.
std::vector<double> rmm_sorted_ns(std::size_t bytes, int batch, int steps);

}  // namespace tidemark::test
