// SPDX-License-Identifier: Apache-2.0
/// @file
/// `slab_store`: the source of a pool's blocks of the size classes. Owns slabs taken from an upstream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/coalescing_heap.hpp>

namespace tidemark::detail {

/// Slabs: upstream memory cut into blocks of one size class. No metadata lies in or beside a block. A slab's
/// record counts its uncarved and stranded blocks.
///
/// A block is in one of four states: live, in a list (of a cache or a depot), *uncarved* (never used; at most
/// one slab of a class has uncarved blocks), or *stranded* (free, in a slab that a trim cannot return yet).
///
/// Invariants: slabs are sorted by address and do not overlap; `uncarved + stranded <= blocks` in each;
/// `held_bytes() == sum of blocks * block size`; a slab with `uncarved + stranded == blocks` is the slab
/// being carved, or its class has `may_be_free`.
///
/// Thread-safety: one thread at a time.
class slab_store {
 public:
  /// Bytes of slabs before the first *region*. Further slabs are cut from regions of malloc, which have huge
  /// pages. A region has slabs of all classes, and returns to malloc when all its slabs are free. The unused
  /// part of a huge page is at most a twentieth of the slabs.
  static constexpr std::size_t min_bytes_with_regions = 40 * MiB;

  slab_store(size_classes const& classes, std::pmr::memory_resource* upstream, std::size_t max_blocks);
  slab_store(slab_store const&) = delete;
  slab_store& operator=(slab_store const&) = delete;
  ~slab_store() { release(); }

  /// Takes a slab from the upstream. The slab has `blocks_wanted` blocks, or a size that suits the class if
  /// that is 0, and at most `max_bytes` bytes. While the upstream fails, the number of blocks is halved, down
  /// to one. The new blocks are uncarved.
  /// @pre the class has no uncarved blocks. @return bytes of the slab. @throws whatever the upstream throws;
  /// nothing has changed then
  std::size_t add_slab(std::size_t index, std::size_t blocks_wanted, std::size_t max_bytes);

  /// Returns uncarved blocks of a class: one page of blocks, so that memory is touched shortly before its
  /// use. At most `max_bytes`, but at least one block.
  [[nodiscard]] block_chain carve(std::size_t index, std::size_t max_bytes) noexcept;
  /// Returns stranded blocks of one slab of a class, at most `max_bytes`, but at least one block. O(slabs +
  /// blocks taken).
  [[nodiscard]] block_chain unstrand(std::size_t index, std::size_t max_bytes) noexcept;

  /// Returns free slabs of a class to the upstream until `bytes_wanted` are returned. `list` has all free
  /// blocks of the class except uncarved and stranded blocks. Blocks of other slabs stay in the list, in order.
  ///
  /// O(length), plus O(log(slabs)) for each pair of successive blocks of different slabs. O(slabs) more if a
  /// slab is returned.
  /// @return number of blocks that are no longer listed or uncarved; likewise for `strand`
  std::size_t release_free_slabs(std::size_t index, block_chain& list, std::size_t bytes_wanted) noexcept;
  /// Strands blocks of a list, then uncarved blocks, until `bytes_wanted` are stranded. O(blocks stranded),
  /// plus searches as above.
  std::size_t strand(std::size_t index, block_chain& list, std::size_t bytes_wanted) noexcept;

  /// Returns all memory to the upstream, including live blocks.
  void release() noexcept;

  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  [[nodiscard]] std::size_t uncarved_bytes() const noexcept { return uncarved_bytes_; }
  /// Bytes of regions that are in no slab.
  [[nodiscard]] std::size_t unused_region_bytes() const noexcept {
    return regions_ == nullptr ? 0 : regions_->held_bytes() - regions_->requested_bytes();
  }

  /// True if `block` is a block of that class. O(log slabs).
  [[nodiscard]] bool is_block_of(void const* block, std::size_t index) const noexcept;
  /// Returns the first broken invariant as a formula; null if all hold. O(slabs + stranded blocks).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  struct slab {
    std::uintptr_t first;
    std::size_t blocks;
    std::size_t index;  // of the size class
    std::size_t uncarved;
    std::size_t stranded = 0;
    free_block* stranded_list = nullptr;
    // Used only during release_free_slabs, otherwise 0 and false:
    std::size_t listed = 0;    // blocks found in the list
    bool is_returned = false;  // all blocks are free and the slab is returned

    bool is_in_region = false;
  };
  struct size_class {
    std::uintptr_t carving = 0;  // address of the slab with uncarved blocks
    std::size_t blocks = 0;      // in all slabs
    std::size_t stranded = 0;
    std::uintptr_t stranding = 0;  // address of the slab in which blocks were stranded last
    bool may_be_free = false;      // a slab without listed blocks may be all free
  };

  [[nodiscard]] std::size_t bytes_of(slab const& s) const noexcept {
    return s.blocks * classes_.bytes(s.index);
  }
  [[nodiscard]] slab const* find(std::uintptr_t address) const noexcept;
  [[nodiscard]] slab* find(std::uintptr_t address) noexcept {
    return const_cast<slab*>(static_cast<slab_store const*>(this)->find(address));
  }
  /// Calls `visit(block, slab)` for each block of a list. `visit` may change the block's link. O(length), plus
  /// O(log(slabs)) for each pair of successive blocks of different slabs.
  template <class Visit>
  void for_each_block(free_block* list, Visit visit) noexcept;
  /// Strands blocks of one slab from the front of a list, at most `max_blocks`. @return number of blocks
  std::size_t strand_from_slab(std::size_t index, block_chain& list, std::size_t max_blocks) noexcept;
  /// Returns memory of a region, for a quarter of `blocks` or more. Returns an empty range for a small store, a
  /// large slab or another upstream than malloc, and if malloc has no memory.
  [[nodiscard]] byte_range allocate_in_region(std::size_t index, std::size_t blocks) noexcept;
  /// Returns exactly the (pointer, bytes, alignment) that the upstream returned, or a slab to its region.
  void return_to_upstream(slab const& s) noexcept;

  size_classes const& classes_;
  std::pmr::memory_resource* upstream_;
  std::size_t max_blocks_;  // of a slab; 0: no limit
  std::pmr::vector<slab> slabs_;
  std::unique_ptr<coalescing_heap> regions_;  // null until the first region
  std::array<size_class, size_classes::max_count> of_class_{};
  std::size_t held_bytes_ = 0, stranded_bytes_ = 0, uncarved_bytes_ = 0;
};

}  // namespace tidemark::detail
