// SPDX-License-Identifier: Apache-2.0
/// @file
/// `std_atomics`: what code without locks that threads run together synchronises with.
#pragma once

#include <atomic>

namespace tidemark::detail {

/// The atomics of production. Such code is a template over this policy, so that tests pass one that tries
/// every schedule instead (`tests/support/interleavings.hpp`, decision 44).
struct std_atomics {
  template <class T>
  using atomic = std::atomic<T>;
};

}  // namespace tidemark::detail
