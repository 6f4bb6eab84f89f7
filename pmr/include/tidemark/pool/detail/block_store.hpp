// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_store`: the memory of a pool: slabs of blocks of the size classes, and large blocks. It owns both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/large_blocks.hpp>
#include <tidemark/pool/detail/slab_store.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark::detail {

/// Takes memory from the upstream and returns it, for `pool` and for `synchronized_pool`.
///
/// `relieve()` makes the upstream more likely to succeed; it returns the bytes returned to it. One thread at
/// a time.
///
/// @tparam Lists where the free blocks of the classes lie, which also counts what is cached: a `block_cache`
/// or a `depot`.
template <class Lists>
class block_store {
 public:
  /// Takes the blocks that the options want at the start, as far as the limit allows.
  /// @param options with the upstream that holds.
  /// @param max_free_bytes what the lists, the uncarved and the kept large blocks may be in all.
  /// @throws what the upstream throws.
  block_store(size_classes const& classes, Lists& lists, pool_options const& options,
              std::size_t max_free_bytes)
      : classes_{classes},
        lists_{lists},
        slabs_{classes, options.upstream, options.max_blocks_per_slab},
        large_{options.upstream},
        max_free_bytes_{max_free_bytes},
        max_kept_bytes_{options.keep_large_blocks ? max_free_bytes : 0} {
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      const std::size_t bytes = classes_.bytes(i);
      const std::size_t blocks = bytes <= 1 * KiB    ? options.small_block_count
                                 : bytes <= 16 * KiB ? options.medium_block_count
                                                     : 0;
      if (blocks > 0 && bytes <= room()) lists_.add_cached(slabs_.add_slab(i, blocks, room()));
    }
  }

  /// Blocks for an empty list: of a slab that is there, or of a new one. They count as cached.
  /// @throws what the upstream throws; nothing has changed then.
  template <class Relieve>
  [[nodiscard]] block_chain refill(std::size_t index, std::size_t max_carved_bytes,
                                   std::size_t max_stranded_bytes, Relieve relieve) {
    block_chain chain = slabs_.carve(index, max_carved_bytes);
    if (chain.blocks > 0) return chain;
    chain = slabs_.take_stranded(index, max_stranded_bytes);
    lists_.add_cached(chain.blocks * classes_.bytes(index));
    if (chain.blocks > 0) return chain;
    constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
    lists_.add_cached(call_upstream([&] { return slabs_.add_slab(index, 0, no_limit); }, relieve));
    ++counts_.misses;
    return slabs_.carve(index, max_carved_bytes);
  }

  /// A block beyond the classes. @throws what the upstream throws; nothing has changed then.
  template <class Relieve>
  [[nodiscard]] void* allocate_large(std::size_t bytes, std::size_t align, Relieve relieve) {
    void* block = large_.take(bytes, align);
    if (block != nullptr) {
      lists_.subtract_cached(large_blocks::bytes_of(block));
    } else {
      block = call_upstream([&] { return large_.allocate(bytes, align); }, relieve);
      ++counts_.misses;
    }
    ++counts_.allocations;
    return block;
  }
  void deallocate_large(void* block, std::size_t bytes) noexcept {
    ++counts_.deallocations;
    const std::size_t kept = large_.deallocate(block, bytes, max_kept_bytes_);
    const std::size_t cached = lists_.cached_bytes() + kept;
    // Before it is counted, so that never more is cached than may be.
    const std::size_t over = kept != 0 && cached > max_free_bytes_ ? cached - max_free_bytes_ : 0;
    lists_.add_cached(kept - large_.release_kept(over));
  }

  /// Where the lists are over the limit, returns large blocks, each of which can go alone, and a sixteenth
  /// more than it must, so that the next blocks have room.
  void make_room() noexcept {
    if (lists_.cached_bytes() > max_free_bytes_) {
      release_large(max_free_bytes_ - max_free_bytes_ / 16);
    }
  }
  /// Returns large blocks and free slabs to the upstream until no more than that is free, stranded blocks
  /// included. @return bytes.
  std::size_t release_free(std::size_t target_bytes) noexcept {
    const std::size_t held_before = held_bytes();
    release_large(target_bytes);
    take_out(
        target_bytes, [&] { return lists_.cached_bytes() + slabs_.stranded_bytes(); },
        &slab_store::release_free_slabs);
    return held_before - held_bytes();
  }
  /// Strands blocks until no more than that is cached.
  void strand(std::size_t target_bytes) noexcept {
    take_out(target_bytes, [&] { return lists_.cached_bytes(); }, &slab_store::strand);
  }
  /// Returns everything to the upstream; large blocks count as deallocated.
  void release() noexcept {
    large_.release();
    slabs_.release();
    counts_.deallocations = counts_.allocations;
  }

  /// Bytes that may still be cached.
  [[nodiscard]] std::size_t room() const noexcept {
    return max_free_bytes_ - std::min(lists_.cached_bytes(), max_free_bytes_);
  }
  [[nodiscard]] slab_store const& slabs() const noexcept { return slabs_; }
  [[nodiscard]] large_blocks const& large() const noexcept { return large_; }
  /// Of large blocks; misses of all.
  [[nodiscard]] block_counts const& counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return slabs_.held_bytes() + large_.held_bytes(); }
  /// Of free blocks that are in no list.
  [[nodiscard]] std::size_t unlisted_bytes() const noexcept {
    return slabs_.uncarved_bytes() + large_.kept_bytes();
  }
  /// In the classes, what is live or cached; and kept large blocks.
  [[nodiscard]] std::size_t reachable_bytes() const noexcept {
    return slabs_.held_bytes() + large_.kept_bytes() - slabs_.stranded_bytes();
  }
  /// The first invariant that does not hold, as a formula; null if all do.
  [[nodiscard]] char const* broken_invariant() const noexcept {
    char const* const formula = slabs_.broken_invariant();
    return formula != nullptr ? formula : large_.broken_invariant();
  }
  /// The same for a list of free blocks of a class, of that length.
  [[nodiscard]] char const* broken_list(std::size_t index, block_chain list) const noexcept {
    std::size_t blocks = 0;
    for (free_block* block = list.first; block != nullptr; block = next_of(block)) {
      if (!slabs_.is_block_of(block, index)) return "a listed block is one of a slab of its class";
      ++blocks;
    }
    return blocks == list.blocks ? nullptr : "listed == net_received + deallocations - allocations";
  }

 private:
  // Once more after `relieve`, unless that has nothing to return.
  template <class Call, class Relieve>
  static auto call_upstream(Call call, Relieve relieve) {
    try {
      return call();
    } catch (std::bad_alloc const&) {
      if (relieve() == 0) throw;
    }
    return call();
  }
  void release_large(std::size_t target_bytes) noexcept {
    const std::size_t cached = lists_.cached_bytes();
    if (cached > target_bytes) lists_.subtract_cached(large_.release_kept(cached - target_bytes));
  }
  // The largest blocks first, of which the fewest need to be touched. `free_bytes()` is read once a class:
  // other threads may take blocks meanwhile.
  template <class Bytes, class Take>
  void take_out(std::size_t target_bytes, Bytes free_bytes, Take take) noexcept {
    for (std::size_t i = classes_.count(); i-- > 0;) {
      const std::size_t bytes = free_bytes();
      if (bytes <= target_bytes) return;
      block_chain all = lists_.take_all(i);
      const std::size_t gone = (slabs_.*take)(i, all, bytes - target_bytes);
      lists_.put_all(i, all);
      lists_.subtract_cached(gone * classes_.bytes(i));
    }
  }

  size_classes const& classes_;
  Lists& lists_;
  slab_store slabs_;
  large_blocks large_;
  std::size_t max_free_bytes_;
  std::size_t max_kept_bytes_;
  block_counts counts_{};
};

}  // namespace tidemark::detail
