// SPDX-License-Identifier: Apache-2.0
// Watched calls of MPI: this program's MPI_… functions count, fail on request, and call PMPI_…, which every
// MPI has for this purpose. All ranks run the same tests, so a call that fails on one rank fails on all.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "recording_supply.hpp"

namespace tidemark::test {

/// The MPI functions called since `reset`.
class mpi_calls : public supply {
 public:
  static mpi_calls& instance();

  std::map<std::string, std::size_t> count;  ///< by function
  std::string fails;                         ///< the only function that can fail; empty: all that are watched
  bool is_finalized = false;                 ///< whether to say so

  void reset() { static_cast<supply&>(*this) = {}, count.clear(), fails.clear(), is_finalized = false; }
  /// Live windows and blocks of MPI.
  long windows = 0, blocks = 0, attached = 0;

  /// Counts a call. @return whether it fails
  bool begin(char const* function) noexcept;
};

}  // namespace tidemark::test
