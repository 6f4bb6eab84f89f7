// SPDX-License-Identifier: Apache-2.0
// Common properties of the subjects of the conformance suite and of the models.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/units.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {

/// A subject whose freed memory is available at once, without invariants to check. @tparam Largest, Capacity
/// in bytes; a capacity of 0 is none
template <std::size_t Largest, std::size_t Capacity = 0, class Supply = recording_resource>
class subject_traits {
 public:
  using supply_type = Supply;
  static constexpr std::size_t largest = Largest, capacity = Capacity;

  void recycle() {}
  void check() const {}

 protected:
  /// Checks one time of `n`, because that is O(blocks).
  void check_one_of(std::size_t n, auto& resource) const {
    if (++checks_ % n == 0) resource.check_invariants();
  }

 private:
  mutable std::size_t checks_ = 0;
};

/// The counts, of any statistics that have them, that a failed request must not change. Excludes counts of
/// kept memory: a failed request frees kept memory before it retries.
std::vector<std::size_t> counts_of(auto const& stats) {
  return {stats.allocations, stats.deallocations, stats.used_blocks,
          stats.peak_blocks, stats.used_bytes,    stats.peak_bytes};
}

}  // namespace tidemark::test
