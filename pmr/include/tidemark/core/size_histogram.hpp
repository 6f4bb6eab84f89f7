// SPDX-License-Identifier: Apache-2.0
/// @file
/// `size_histogram`: the sizes that a program requests, and the size classes that fit them. Owns its counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Counts requests by size and suggests the size classes of a pool that waste least on them.
///
/// ```cpp
/// size_histogram sizes;
/// for (std::size_t bytes : requests_of_a_run) sizes.record(bytes);
/// pool fitted{{.size_classes = sizes.suggest_size_classes(12)}};
/// ```
/// `statistics_resource` records into one what goes through it. Thread-safe, also in a child that is forked.
class size_histogram {
 public:
  /// `count` requests of `bytes` bytes. O(log sizes). @throws std::bad_alloc, with nothing changed.
  void record(std::size_t bytes, std::uint64_t count = 1);

  /// Requests so far.
  [[nodiscard]] std::uint64_t requests() const;

  /// At most `max_count` classes, for `pool_options::size_classes`, such that the sum over requests of at
  /// most `largest_bytes` of (block size - request) is the least there is; larger requests are left to the
  /// upstream. Nothing, which stands for the default classes, if there was no such request.
  ///
  /// The optimum, by dynamic programming over the distinct sizes, rounded up to multiples of 16 (Galil and
  /// Park, "Dynamic programming with convexity, concavity and sparsity", 1992): O(max_count * sizes^2) at
  /// most.
  /// @param max_count from 1 to 96. @throws std::invalid_argument otherwise.
  [[nodiscard]] std::vector<std::size_t> suggest_size_classes(std::size_t max_count = 9,
                                                              std::size_t largest_bytes = 16 * KiB) const;

  /// Bytes that blocks of these classes would have beyond what was requested, summed over the requests that
  /// have a class.
  [[nodiscard]] std::uint64_t wasted_bytes(std::span<std::size_t const> size_classes) const;

 private:
  mutable detail::fork_safe<> mutex_;
  std::map<std::size_t, std::uint64_t> counts_;  // of each size
};

}  // namespace tidemark
