// SPDX-License-Identifier: Apache-2.0
/// @file
/// `heap_block_cache`: blocks of a `coalescing_heap` that one thread freed, for its next requests. Owns no
/// memory.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/single_writer.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/coalescing_heap.hpp>

namespace tidemark::detail {

/// Lists of free blocks, last in, first out, each of ranges of exactly one size, which a step that runs again
/// asks for again. To the heap they are live: they are not merged until the thread gives them back.
///
/// A size has one place in a table, and takes it over from a size that has no more blocks. Invariant:
/// `bytes() == sum over listed ranges`. O(1) where not said otherwise. One thread at a time, except what
/// counts, which any thread may read.
class heap_block_cache {
 public:
  /// A block; null if there is none of that size, or the one freed last is not so aligned. @pre the heap has
  /// such blocks, here and below.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t range_bytes = coalescing_heap::range_bytes(bytes);
    list& own = lists_[place_of(range_bytes)];
    free_block* const block = own.first;
    if (own.range_bytes != range_bytes || block == nullptr || (address_of(block) & (align - 1)) != 0)
      return nullptr;
    own.first = next_of(block);
    allocations_.add(1);
    bytes_.subtract(range_bytes);
    requested_bytes_.add(bytes);
    unpoison(address_of(block), bytes);
    return block;
  }

  /// Takes a block back. @return false if blocks of another size have its place; nothing has changed then.
  [[nodiscard]] bool give(void* block, std::size_t bytes) noexcept {
    const std::size_t range_bytes = coalescing_heap::range_bytes(bytes);
    list& own = lists_[place_of(range_bytes)];
    if (own.range_bytes != range_bytes) {
      if (own.first != nullptr) return false;
      own.range_bytes = range_bytes;
    }
    poison_freed(block, range_bytes - coalescing_heap::tag_bytes);
    auto* const freed = static_cast<free_block*>(block);
    link(freed, own.first);
    own.first = freed;
    deallocations_.add(1);
    bytes_.add(range_bytes);
    requested_bytes_.subtract(bytes);
    return true;
  }

  /// Calls `give_back(block)` for blocks until `max_bytes` at most are left: all of a size, then those of the
  /// next place, so that each has its turn. O(places) besides the blocks.
  template <class GiveBack>
  void shrink(std::size_t max_bytes, GiveBack give_back) noexcept {
    for (std::size_t visited = 0; bytes() > max_bytes && visited < place_count; ++visited) {
      next_shrunk_ = (next_shrunk_ + 1) % place_count;
      empty_to(max_bytes, lists_[next_shrunk_], give_back);
    }
  }
  /// The same for all blocks of the size that has the place of one of `bytes`.
  template <class GiveBack>
  void make_place(std::size_t bytes, GiveBack give_back) noexcept {
    empty_to(0, lists_[place_of(coalescing_heap::range_bytes(bytes))], give_back);
  }

  /// Of all ranges listed. Any thread.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.value(); }
  /// Blocks taken and given so far. Any thread.
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_.value(); }
  [[nodiscard]] std::uint64_t deallocations() const noexcept { return deallocations_.value(); }
  /// Bytes requested of blocks taken, less those of blocks given: it may wrap below 0. Any thread.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }

  /// Forgets all lists; live blocks count as deallocated.
  void forget() noexcept {
    lists_ = {};
    deallocations_.set(allocations());
    bytes_.set(0);
    requested_bytes_.set(0);
  }
  /// Adds what another cache has counted, whose thread is gone.
  void add_counts(heap_block_cache const& other) noexcept {
    allocations_.add(other.allocations());
    deallocations_.add(other.deallocations());
    bytes_.add(other.bytes());
    requested_bytes_.add(other.requested_bytes());
  }

  /// Whether the invariant holds. O(blocks).
  [[nodiscard]] bool is_counted() const noexcept {
    std::size_t sum = 0;
    for (list const& each : lists_) {
      for (free_block* block = each.first; block != nullptr; block = next_of(block)) sum += each.range_bytes;
    }
    return sum == bytes();
  }

 private:
  static constexpr std::size_t place_count = 64;

  struct list {
    std::size_t range_bytes = 0;
    free_block* first = nullptr;
  };

  [[nodiscard]] static std::size_t place_of(std::size_t range_bytes) noexcept {
    return fibonacci_hash(range_bytes) >> (64 - std::bit_width(place_count - 1));
  }
  template <class GiveBack>
  void empty_to(std::size_t max_bytes, list& own, GiveBack give_back) noexcept {
    while (own.first != nullptr && bytes() > max_bytes) {
      free_block* const block = own.first;
      own.first = next_of(block);
      bytes_.subtract(own.range_bytes);
      give_back(block);
    }
  }

  std::array<list, place_count> lists_{};
  std::size_t next_shrunk_ = 0;
  single_writer<std::uint64_t> allocations_;
  single_writer<std::uint64_t> deallocations_;
  single_writer<std::size_t> bytes_;
  single_writer<std::size_t> requested_bytes_;
};

}  // namespace tidemark::detail
