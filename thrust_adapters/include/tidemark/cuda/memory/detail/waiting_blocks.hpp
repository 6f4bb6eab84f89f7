// SPDX-License-Identifier: Apache-2.0
/// @file
/// `waiting_blocks`: blocks that cannot go back yet. Owns records, not blocks.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark::gpu::detail {

/// Blocks that were deallocated while nothing may go back, as during a capture. There is room for all live
/// blocks, made when each is allocated, so that to deallocate needs no memory.
///
/// Invariant: `waiting <= live <= capacity`. Complexity: O(1), amortised. Thread-safety: any thread.
class waiting_blocks {
 public:
  struct block {
    void* first;
    std::size_t bytes, align;
  };

  explicit waiting_blocks(std::pmr::memory_resource* bookkeeping) : waiting_{bookkeeping} {}

  /// A block is about to be allocated. @throws what the bookkeeping resource throws; nothing has changed
  /// then.
  void add() {
    const std::scoped_lock lock{mutex_};
    if (live_ == waiting_.capacity()) waiting_.reserve(2 * live_ + 16);
    ++live_;
  }
  /// A block that does not wait is gone, or was not allocated.
  void remove() noexcept {
    const std::scoped_lock lock{mutex_};
    --live_;
  }
  /// A live block waits from here on.
  void push(block const& waits) noexcept {
    const std::scoped_lock lock{mutex_};
    waiting_.push_back(waits);
  }
  /// One that waits, and does so no more; none if nothing waits.
  [[nodiscard]] std::optional<block> pop() noexcept {
    const std::scoped_lock lock{mutex_};
    if (waiting_.empty()) return std::nullopt;
    const block last = waiting_.back();
    waiting_.pop_back();
    return last;
  }
  /// Of all that wait. O(blocks).
  [[nodiscard]] std::size_t bytes() const noexcept {
    const std::scoped_lock lock{mutex_};
    std::size_t sum = 0;
    for (block const& each : waiting_) sum += each.bytes;
    return sum;
  }

 private:
  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows
  std::pmr::vector<block> waiting_;
  std::size_t live_ = 0;  // waiting ones included
};

}  // namespace tidemark::gpu::detail
