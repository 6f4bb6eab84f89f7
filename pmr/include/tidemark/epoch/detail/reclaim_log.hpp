// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reclaim_log`: which epoch reclaimed blocks whose addresses were allocated again. Owns its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <new>
#include <optional>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark::detail {

/// For the messages of the use-after-epoch detector, while it is on. The latest `max_count` only, so that a
/// long run stays bounded. Any thread.
class reclaim_log {
 public:
  static constexpr std::size_t max_count = 65'536;

  /// Records what ended a generation of a block. If there is no memory for it, a message says less. O(1).
  void add(tracked_block const& block, std::uint64_t generation, ending how) noexcept {
    const std::scoped_lock lock{mutex_};
    try {
      records_.push_back({&block, generation, how});
    } catch (std::bad_alloc const&) {
      return;
    }
    if (records_.size() > max_count) records_.pop_front();
  }
  /// O(max_count): called for a message only.
  [[nodiscard]] std::optional<ending> find(tracked_block const& block,
                                           std::uint64_t generation) const noexcept {
    const std::scoped_lock lock{mutex_};
    for (record const& each : records_) {
      if (each.block == &block && each.generation == generation) return each.how;
    }
    return std::nullopt;
  }

 private:
  struct record {
    tracked_block const* block;
    std::uint64_t generation;
    ending how;
  };
  mutable fork_safe<> mutex_;
  std::deque<record> records_;  // the oldest first
};

}  // namespace tidemark::detail
