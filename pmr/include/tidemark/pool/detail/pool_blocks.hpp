// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool_blocks`: the free lists of a `pool`, through the blocks themselves, and the memory behind them,
/// which they own.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/block_store.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark::detail {

/// A `block_cache` on a `block_store`: the free lists of a `basic_pool` on a host. They count free
/// ranges of the heap and uncarved blocks as cached, too.
class pool_blocks : public block_cache {
 public:
  static constexpr char const* kind = "pool";
  static constexpr bool host_accessible = true;
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// @param upstream null: the default resource.
  /// @throws std::invalid_argument for impossible sizes of classes, or what the upstream throws.
  pool_blocks(pool_options const& options, std::pmr::memory_resource* upstream);

  /// Where `take` returned null. @throws what the upstream throws, after `release_free(0)` and another call.
  [[nodiscard]] void* take_slow(std::size_t bytes, std::size_t align);
  /// Where `give` returned `result`, which is not `listed`.
  void give_slow(void* block, std::size_t bytes, std::size_t align, free_result result) noexcept;

  /// Returns large blocks and free slabs to the upstream until no more than that is free, stranded blocks
  /// included. @return bytes.
  std::size_t release_free(std::size_t target_bytes) noexcept { return store_.release_free(target_bytes); }
  /// Strands blocks until no more than that is cached.
  void strand(std::size_t target_bytes) noexcept { store_.strand(target_bytes); }
  /// Returns everything to the upstream.
  void release() noexcept {
    store_.release();
    forget();
  }

  /// The options that hold.
  [[nodiscard]] pool_options const& options() const noexcept { return options_; }
  [[nodiscard]] block_counts counts() const noexcept;
  [[nodiscard]] std::size_t requested_bytes() const noexcept {
    return block_cache::requested_bytes() + store_.requested_large_bytes();
  }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return store_.stranded_bytes(); }
  /// Of those, blocks of the classes.
  [[nodiscard]] std::size_t stranded_block_bytes() const noexcept { return store_.stranded_block_bytes(); }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return store_.held_bytes(); }
  /// Of live blocks of the classes.
  [[nodiscard]] std::size_t live_bytes() const noexcept { return store_.reachable_bytes() - cached_bytes(); }
  /// The first invariant that does not hold, as a formula; null if all do. O(free blocks * log(slabs)).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  void drain_pending_work() noexcept {
    if (take_pending_work()) (void)release_free(0);  // memory is short
  }

  pool_options options_;
  block_store<block_cache> store_;
};

}  // namespace tidemark::detail
