// SPDX-License-Identifier: Apache-2.0
/// @file
/// `depot`: lists of free blocks that threads leave for each other. Owns no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/depot_bin.hpp>

namespace tidemark::detail {

/// A `depot_bin` for each size class, and the count of what is cached in no thread's cache. Thread-safe.
class depot final : fork_participant {
 public:
  explicit depot(size_classes const& classes) noexcept : classes_{classes} { join(); }
  ~depot() { leave(); }

  /// Leaves a chain. Its bytes are the caller's to count, here and below. O(1).
  void put(std::size_t index, block_chain chain) noexcept { bins_[index].put(chain); }
  /// Takes the chain that was left last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take(std::size_t index) noexcept { return bins_[index].take(); }
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept { return bins_[index].take_all(); }
  /// Leaves a chain in pieces that suit a thread's cache. O(blocks).
  void put_all(std::size_t index, block_chain chain) noexcept;

  /// Blocks of a class in it, and bytes of all.
  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept { return bins_[index].blocks(); }
  [[nodiscard]] std::size_t listed_bytes() const noexcept;

  /// Bytes that are cached in no thread's cache: here, uncarved, or free ranges of the heap.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_ += bytes; }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_ -= bytes; }

  /// The most that a thread's cache may hold.
  [[nodiscard]] std::atomic<std::size_t> const& share_bytes() const noexcept { return share_bytes_; }
  /// @return what it was.
  std::size_t set_share_bytes(std::size_t bytes) noexcept { return share_bytes_.exchange(bytes); }

 private:
  [[nodiscard]] bool lock_for_fork(fork_attempt& attempt) noexcept override;
  void unlock_after_fork(fork_side side) noexcept override;

  size_classes const& classes_;
  std::array<depot_bin, size_classes::max_count> bins_;
  std::atomic<std::size_t> cached_bytes_{0};
  std::atomic<std::size_t> share_bytes_{0};
};

}  // namespace tidemark::detail
