// SPDX-License-Identifier: Apache-2.0
/// @file
/// `size_histogram`: the request sizes of a program, and size classes that fit them. Owns its counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Counts requests by size and suggests the size classes of a pool that waste the fewest bytes.
///
/// ```cpp
/// size_histogram sizes;
/// for (std::size_t bytes : requests_of_a_run) sizes.record(bytes);
/// pool fitted{{.size_classes = sizes.suggest_size_classes(12)}};
/// ```
/// `statistics_resource` can record its requests into a histogram. Thread-safe, also in a forked child.
class size_histogram {
 public:
  /// Records `count` requests of `bytes` bytes. O(log sizes). @throws std::bad_alloc, with nothing changed.
  void record(std::size_t bytes, std::uint64_t count = 1);

  /// Requests so far.
  [[nodiscard]] std::uint64_t requests() const;

  /// Returns at most `max_count` classes for `pool_options::size_classes`. They minimise the sum of (block
  /// size - request) over all requests of at most `largest_bytes`; the upstream serves larger requests.
  /// Returns an empty vector, which selects the default classes, if there was no such request.
  ///
  /// Dynamic programming over the distinct sizes, rounded up to multiples of 16, finds the optimum (Galil and
  /// Park, "Dynamic programming with convexity, concavity and sparsity", 1992). At most O(max_count *
  /// sizes^2).
  /// @param max_count from 1 to 96. @throws std::invalid_argument otherwise.
  [[nodiscard]] std::vector<std::size_t> suggest_size_classes(std::size_t max_count = 9,
                                                              std::size_t largest_bytes = 16 * KiB) const;

 private:
  mutable detail::fork_safe<> mutex_;
  std::map<std::size_t, std::uint64_t> counts_;  // requests of each size
};

}  // namespace tidemark
