// SPDX-License-Identifier: Apache-2.0
// RMM's pool as a peer, in a source of its own: it is built with RMM's headers, or without any.
#pragma once

#include <cstddef>

namespace tidemark::test {

/// Nanoseconds a block of a step that takes `batch` blocks of RMM's pool and gives them back: the median of
/// so many rounds. Negative if RMM is not built in.
double rmm_step_ns(std::size_t bytes, int batch, int rounds);

}  // namespace tidemark::test
