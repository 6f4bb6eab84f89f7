// SPDX-License-Identifier: Apache-2.0
// RMM's pool as a peer, in a source of its own: it is built with RMM's headers, or without any.
#pragma once

#include <cstddef>
#include <vector>

namespace tidemark::test {

/// Nanoseconds a block of each of `steps` steps, sorted, that take `batch` blocks of RMM's pool and give them
/// back. None if RMM is not built in.
std::vector<double> rmm_sorted_ns(std::size_t bytes, int batch, int steps);

}  // namespace tidemark::test
