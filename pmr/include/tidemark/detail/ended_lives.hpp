// SPDX-License-Identifier: Apache-2.0
/// @file
/// `ended_lives`: which epoch reclaimed blocks whose addresses have been handed out again. Owns its notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <tidemark/detail/tracked_block.hpp>

namespace tidemark::detail {

/// The epoch or owner that reclaimed a block.
struct ending {
  char const* name;
  std::size_t depth;  // 0: an owner
};

/// Kept while the use-after-epoch detector is on, for its messages. The latest `count_max` only, so that a long
/// run stays bounded. Any thread. O(log(count_max)).
class ended_lives {
 public:
  static constexpr std::size_t count_max = 65'536;

  /// Notes who ended a life of a block. If there is no memory for it, a message says less.
  void add(tracked_block const& block, std::uint64_t life, ending how) noexcept;
  [[nodiscard]] std::optional<ending> find(tracked_block const& block, std::uint64_t life) const noexcept;

 private:
  using key = std::pair<tracked_block const*, std::uint64_t>;
  mutable std::mutex mutex_;
  std::map<key, ending> endings_;
  std::deque<key> order_;  // the oldest first
};

}  // namespace tidemark::detail
