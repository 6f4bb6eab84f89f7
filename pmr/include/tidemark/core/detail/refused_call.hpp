// SPDX-License-Identifier: Apache-2.0
/// @file
/// `refused_call`: a call of the system that failed, from which the limit behind it is found. Owns nothing.
#pragma once

#include <cstddef>

namespace tidemark::detail {

/// A call of the system that was refused memory or addresses.
struct refused_call {
  int error = 0;           ///< errno; 0: the call does not say
  std::size_t bytes = 0;   ///< that it was for
  bool is_commit = false;  ///< of memory behind reserved addresses, and not of addresses
};

}  // namespace tidemark::detail
