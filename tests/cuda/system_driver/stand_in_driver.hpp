// SPDX-License-Identifier: Apache-2.0
// Counts of the stand-in for libcuda.so.1. The test reads them through the symbol `stand_in_calls`.
#pragma once

#include <atomic>

namespace tidemark::test {

/// Counts of all threads.
struct stand_in_record {
  std::atomic<int> initializations{0};    ///< calls of cuInit
  std::atomic<int> contexts_retained{0};  ///< calls of cuDevicePrimaryCtxRetain
  std::atomic<int> refused_calls{0};      ///< calls that returned an error
  std::atomic<int> calls_in_context{0};   ///< calls of cuStreamCreate and cuEventRecord that succeeded
};

}  // namespace tidemark::test
