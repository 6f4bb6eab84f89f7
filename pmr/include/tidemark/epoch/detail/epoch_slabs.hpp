// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_slabs`: the slabs of a thread's epochs, and the upstream chunks that contain them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/epoch/detail/address_table.hpp>
#include <tidemark/epoch/detail/epoch_slab.hpp>

namespace tidemark {

struct epoch_summary;

namespace detail {

using epoch_slab_table = address_table<epoch_slab, std::countr_zero(epoch_slab::range_bytes)>;

/// Lists of slabs. Each open epoch has a list of slabs with free blocks for each size class, and a list of
/// full slabs. A further list has the free slabs, for the next epoch. A chunk whose slabs are all free is
/// released when no epoch is open.
///
/// Invariants: each slab of the group's chunks is in exactly one of these lists, or kept;
/// `free_slabs_of_chunk` is the number of free slabs of a chunk; a held slab is full if and only if it is in
/// the list of full slabs.
///
/// Thread-safety: one thread at a time; the section "with the lock" also needs the group's lock.
class epoch_slabs {
 public:
  /// @param table owns the records of the slabs
  epoch_slabs(epoch_slab_table& table, std::pmr::memory_resource* bookkeeping)
      : table_{table}, frames_{bookkeeping} {}

  /// True if the innermost epoch has lists.
  [[nodiscard]] bool has_frame() const noexcept { return innermost_ != none.data(); }
  /// Returns a slab of the innermost epoch with a free block of a size class; null if there is no such slab.
  [[nodiscard]] epoch_slab* with_room(std::size_t index) const noexcept { return innermost_[index]; }
  /// Allocates a block of a slab. O(1). @pre the slab is not full
  [[nodiscard]] void* allocate(epoch_slab& slab, std::size_t bytes) noexcept {
    void* const block = slab.allocate();
    if (slab.is_full()) [[unlikely]] {
      frame& in = frames_[slab.depth - 1];
      move(slab, in.with_room[slab.class_index], in.full);
    }
    unpoison(address_of(block), bytes);
    return block;
  }
  /// Sets the number of open epochs. O(1).
  void set_depth(std::size_t depth) noexcept {
    if (frame_count_ == 0) return;
    innermost_ = depth > 0 && depth <= frame_count_ ? frames_[depth - 1].with_room.data() : none.data();
  }
  /// Deallocates a live block of a held slab.
  void deallocate(epoch_slab& slab, std::size_t i) noexcept {
    const bool had_no_room = slab.is_full();
    slab.deallocate(i);
    poison_block(slab, i);
    if (had_no_room) has_room_again(slab);
  }
  /// Moves a held slab from the full list to the list of its class, because a block became free.
  void has_room_again(epoch_slab& slab) noexcept {
    frame& in = frames_[slab.depth - 1];
    in.classes |= std::uint64_t{1} << slab.class_index;
    move(slab, in.full, in.with_room[slab.class_index]);
  }
  /// True if a held slab is empty and its list contains another slab.
  [[nodiscard]] static bool is_superfluous(epoch_slab const& slab) noexcept {
    return slab.used == 0 && (slab.previous != nullptr || slab.next != nullptr);
  }
  /// Poisons a deallocated block of a slab. Any thread.
  void poison_block(epoch_slab const& slab, std::size_t i) const noexcept {
    poison(slab.address + i * slab.block_bytes, slab.block_bytes);
  }

  // ---- with the lock

  /// Moves a free slab to an epoch. @return false if there is no free slab
  bool acquire_free_slab(block_group& holder, std::size_t depth, std::size_t index,
                         std::size_t block_bytes) noexcept;
  /// Frees blocks that other threads have deallocated in full slabs. O(slabs).
  void collect() noexcept;
  /// Makes an empty slab free.
  void retire_slab(epoch_slab& slab) noexcept;
  /// Deallocates a live block of a kept slab. The slab becomes free with its last block. @return true if all
  /// slabs of the chunk are free now
  bool deallocate_in_kept_slab(epoch_slab& slab, std::size_t i) noexcept {
    slab.deallocate(i);
    poison_block(slab, i);
    if (slab.used > 0) return false;
    end_use(slab);
    return slab.chunk->free_slabs_of_chunk == slab.chunk->chunk_slabs;
  }
  /// Ends the innermost epoch. Slabs with kept blocks move to the outer epoch, or become kept slabs. Adds the
  /// counts to `sum`.
  void end(std::size_t depth, char const* name, epoch_summary& sum) noexcept;
  /// Removes a chunk whose slabs are all free, or any chunk if `also_used`. Its ranges become the
  /// upstream's.
  /// @return the chunk's memory, which the caller returns to the upstream; empty if there is no such chunk.
  /// O(chunks + slabs).
  [[nodiscard]] byte_range remove_chunk(bool also_used) noexcept;
  /// Makes the ranges in a chunk free slabs. @pre each range has a record
  void add_chunk(byte_range added, block_group& holder) noexcept;

  /// Number of slabs of open epochs.
  [[nodiscard]] std::size_t held_slabs() const noexcept { return held_slabs_; }
  /// True if the group has a chunk. Any thread.
  [[nodiscard]] bool has_chunks() const noexcept {
    return chunks_.load(std::memory_order_relaxed) != nullptr;
  }
  /// Address of the first aligned range in a chunk. `range_count` is the number of ranges.
  [[nodiscard]] static std::uintptr_t first_range(byte_range chunk) noexcept {
    return align_up(chunk.begin, epoch_slab::range_bytes);
  }
  [[nodiscard]] static std::size_t range_count(byte_range chunk) noexcept {
    return (chunk.end() - first_range(chunk)) / epoch_slab::range_bytes;
  }
  /// Calls `visit(slab)` for each slab of an open epoch.
  template <class Visit>
  void for_each_held(Visit visit) const {
    for (frame const& each : frames_) {
      for (epoch_slab const* slab = each.full; slab != nullptr; slab = slab->next) visit(*slab);
      for (epoch_slab const* first : each.with_room) {
        for (epoch_slab const* slab = first; slab != nullptr; slab = slab->next) visit(*slab);
      }
    }
  }
  /// Allocates lists for the innermost epoch. @throws std::bad_alloc
  void reserve_frame(std::size_t depth) {
    if (frames_.size() < depth) frames_.resize(depth);
    frame_count_ = frames_.size();
    set_depth(depth);
  }
  void forget() noexcept {
    set_depth(0);
    std::pmr::vector<frame>{frames_.get_allocator()}.swap(frames_);
    frame_count_ = 0;
  }

 private:
  static constexpr std::size_t max_classes = 40;  // up to epoch_slab::max_block_bytes
  struct frame {
    std::array<epoch_slab*, max_classes> with_room{};
    epoch_slab* full = nullptr;
    std::uint64_t classes = 0;  // bit i: `with_room[i]` may be non-null
  };
  static constexpr std::array<epoch_slab*, max_classes> none{};

  static void insert(epoch_slab& slab, epoch_slab*& list) noexcept {
    slab.previous = nullptr;
    slab.next = list;
    if (list != nullptr) list->previous = &slab;
    list = &slab;
  }
  static void remove(epoch_slab& slab, epoch_slab*& list) noexcept {
    (slab.previous != nullptr ? slab.previous->next : list) = slab.next;
    if (slab.next != nullptr) slab.next->previous = slab.previous;
  }
  static void move(epoch_slab& slab, epoch_slab*& from, epoch_slab*& to) noexcept {
    remove(slab, from);
    insert(slab, to);
  }
  void insert_free_slab(epoch_slab& slab) noexcept {
    slab.use.store(epoch_slab::range_use::free, std::memory_order_release);
    ++slab.chunk->free_slabs_of_chunk;
    insert(slab, free_slabs_);
  }
  /// Makes a slab without blocks free.
  void end_use(epoch_slab& slab) noexcept {
    slab.end();
    insert_free_slab(slab);
  }
  void end_slab(epoch_slab& slab, std::size_t depth, char const* name, epoch_summary& sum) noexcept;

  epoch_slab* const* innermost_ = none.data();  // `with_room` of the innermost epoch
  epoch_slab_table& table_;
  std::pmr::vector<frame> frames_;
  std::size_t frame_count_ = 0;  // frames_.size(), which would need a division
  epoch_slab* free_slabs_ = nullptr;
  std::atomic<epoch_slab*> chunks_{nullptr};  // written with the lock
  std::size_t held_slabs_ = 0;
};

}  // namespace detail
}  // namespace tidemark
