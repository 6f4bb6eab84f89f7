// SPDX-License-Identifier: Apache-2.0
/// @file
/// `slab_store`: where the blocks of a pool's classes come from: slabs of an upstream, which the store owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark::detail {

/// Slabs: pieces of upstream memory, each cut into blocks of one class. Nothing is stored in or beside a
/// block; one record a slab says how many of its blocks were never used or are set aside.
///
/// A block is in one of four states: live, in a list (a cache's or a depot's), *uncarved* (never used; at
/// most one slab of a class has such blocks), or *stranded*: set aside by a trim because its slab cannot go
/// back
/// yet.
///
/// Invariants: slabs are sorted by address and do not overlap; `uncarved + stranded <= blocks` in each;
/// `held_bytes() == sum of blocks * block size`; a slab with `uncarved + stranded == blocks` is the slab that is being
/// carved, or a trim looks for it (`may_be_free`).
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. One thread at a time.
class slab_store {
 public:
  slab_store(size_classes const& classes, std::pmr::memory_resource* upstream, std::size_t max_blocks);
  slab_store(slab_store const&) = delete;
  slab_store& operator=(slab_store const&) = delete;
  ~slab_store() { release(); }

  /// Takes a slab from the upstream, of the size that suits the class or with `blocks_wanted` blocks if that
  /// is not 0, and with `max_bytes` bytes at most; half as many blocks each time the upstream refuses them,
  /// down to one. Its blocks are uncarved.
  /// @pre the class has no uncarved blocks. @return its bytes. @throws what the upstream throws; nothing has
  /// changed then.
  std::size_t add_slab(std::size_t index, std::size_t blocks_wanted, std::size_t max_bytes);

  /// Uncarved blocks of a class: a page of them at a time, so that memory is not touched long before its use,
  /// and `max_bytes` or one block at most.
  [[nodiscard]] block_chain carve(std::size_t index, std::size_t max_bytes) noexcept;
  /// Stranded blocks of one slab of a class, `max_bytes` or one block at most. O(slabs + blocks taken).
  [[nodiscard]] block_chain take_stranded(std::size_t index, std::size_t max_bytes) noexcept;

  /// Returns slabs of a class whose blocks are all free, until `bytes_wanted` are gone. `list` holds all free
  /// blocks of the class except the uncarved and the stranded ones. Those of other slabs stay in the list, slab by
  /// slab in the order in which the list had the first block of each, and in their own order within a slab.
  /// O(length), with a search for the slab, O(log(slabs)), where two blocks in a row are not of one slab; and O(slabs)
  /// if a slab is returned.
  /// @return blocks that are neither listed nor uncarved any more, here and below.
  std::size_t release_free_slabs(std::size_t index, block_chain& list, std::size_t bytes_wanted) noexcept;
  /// Sets blocks of a list and uncarved ones aside, until `bytes_wanted` are gone. O(blocks set aside), with
  /// searches as above, few for a list that a trim has grouped by slab.
  std::size_t strand(std::size_t index, block_chain& list, std::size_t bytes_wanted) noexcept;

  /// Returns everything to the upstream, also live blocks.
  void release() noexcept;

  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  [[nodiscard]] std::size_t uncarved_bytes() const noexcept { return uncarved_bytes_; }

  /// Whether `block` is one of the blocks of that class. O(log slabs).
  [[nodiscard]] bool is_block_of(void const* block, std::size_t index) const noexcept;
  /// The first invariant that does not hold, as a formula; null if all do. O(slabs + stranded blocks).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  struct slab {
    std::uintptr_t first;
    std::size_t blocks;
    std::size_t index;  // of the class
    std::size_t uncarved;
    std::size_t stranded = 0;
    free_block* stranded_list = nullptr;
    // Only during release_free_slabs, otherwise 0, false and null:
    std::size_t listed = 0;    // blocks found in the list
    bool leaving = false;      // all are free and it is returned
    slab* next_met = nullptr;  // the slab whose first block comes next in the list
    // Only while blocks are listed:
    free_block* first_listed = nullptr;
    free_block* last_listed = nullptr;
  };
  struct size_class {
    std::uintptr_t carving = 0;  // an address in the slab that has uncarved blocks
    std::size_t blocks = 0;      // in all slabs
    std::size_t stranded = 0;
    std::uintptr_t stranding = 0;  // an address in the slab that blocks were stranded in last
    bool may_be_free = false;      // a slab without listed blocks may be all free
  };

  [[nodiscard]] std::size_t bytes_of(slab const& s) const noexcept {
    return s.blocks * classes_.bytes(s.index);
  }
  [[nodiscard]] slab const* find(std::uintptr_t address) const noexcept;
  [[nodiscard]] slab* find(std::uintptr_t address) noexcept {
    return const_cast<slab*>(static_cast<slab_store const*>(this)->find(address));
  }
  /// Links the blocks of each slab in a list. @return the slab met first; null if none.
  [[nodiscard]] slab* group_by_slab(free_block* list) noexcept;
  /// Makes one list of the blocks of slabs that stay.
  [[nodiscard]] static free_block* joined(slab* met) noexcept;
  /// Sets the first blocks of a list aside, `max_blocks` at most, those of one slab. @return how many.
  std::size_t set_aside(std::size_t index, block_chain& list, std::size_t max_blocks) noexcept;
  void return_to_upstream(slab const& s) noexcept;

  size_classes const& classes_;
  std::pmr::memory_resource* upstream_;
  std::size_t max_blocks_;  // of a slab; 0: no limit
  std::pmr::vector<slab> slabs_;
  std::array<size_class, size_classes::max_count> of_class_{};
  std::size_t held_bytes_ = 0, stranded_bytes_ = 0, uncarved_bytes_ = 0;
};

}  // namespace tidemark::detail
