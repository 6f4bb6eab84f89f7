// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_slabs`: the slabs of a thread's epochs, and the chunks of the upstream that they are cut from.
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

/// Lists of slabs: for each open epoch those that have room, by size class, and those that are full; and
/// spare ones, which the next epoch takes. A chunk all of whose slabs are spare is given up when no epoch is
/// open.
///
/// Invariants: each slab of a chunk of the group is in one of these lists, or kept; `chunk_spare` is the
/// number of a chunk's spare ones; a held slab is full if and only if it is in the list of full ones.
///
/// One thread at a time, and where it says so with the group's lock.
class epoch_slabs {
 public:
  /// @param table where the records are
  epoch_slabs(epoch_slab_table& table, std::pmr::memory_resource* bookkeeping)
      : table_{table}, frames_{bookkeeping} {}

  /// Whether there are lists for the innermost epoch.
  [[nodiscard]] bool has_frame() const noexcept { return innermost_ != none.data(); }
  /// A slab of the innermost epoch and a size class that has room; null if there is none.
  [[nodiscard]] epoch_slab* with_room(std::size_t index) const noexcept { return innermost_[index]; }
  /// A block of a slab that has room. O(1).
  [[nodiscard]] void* take(epoch_slab& slab, std::size_t bytes) noexcept {
    void* const block = slab.take();
    if (slab.is_full()) [[unlikely]] {
      frame& in = frames_[slab.depth - 1];
      move(slab, in.with_room[slab.class_index], in.full);
    }
    unpoison(address_of(block), bytes);
    return block;
  }
  /// Says how many epochs are open. O(1).
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
  /// A slab that is held had no room and has now.
  void has_room_again(epoch_slab& slab) noexcept {
    frame& in = frames_[slab.depth - 1];
    in.classes |= std::uint64_t{1} << slab.class_index;
    move(slab, in.full, in.with_room[slab.class_index]);
  }
  /// Whether a held slab is empty, and another one of its epoch and class has room.
  [[nodiscard]] static bool is_superfluous(epoch_slab const& slab) noexcept {
    return slab.used == 0 && (slab.previous != nullptr || slab.next != nullptr);
  }
  /// A block of a slab was deallocated, by any thread.
  void poison_block(epoch_slab const& slab, std::size_t i) const noexcept {
    poison(slab.address + i * slab.block_bytes, slab.block_bytes);
  }

  // ---- with the lock

  /// A spare slab becomes one of an epoch. @return false if there is none.
  bool add_spare(block_group& holder, std::size_t depth, std::size_t index, std::size_t block_bytes) noexcept;
  /// Frees what other threads have deallocated in slabs that are full. O(slabs).
  void collect() noexcept;
  /// An empty slab becomes spare.
  void make_spare(epoch_slab& slab) noexcept;
  /// Deallocates a live block of a kept slab, which becomes spare with its last one. @return whether all of
  /// its chunk is spare then.
  bool deallocate_kept(epoch_slab& slab, std::size_t i) noexcept {
    slab.deallocate(i);
    poison_block(slab, i);
    if (slab.used > 0) return false;
    end_use(slab);
    return slab.chunk->chunk_spare == slab.chunk->chunk_slabs;
  }
  /// Ends the innermost epoch: slabs with kept blocks become those of the epoch around it, or kept. Adds what
  /// it did to `sum`.
  void end(std::size_t depth, char const* name, epoch_summary& sum) noexcept;
  /// Removes a chunk all of whose slabs are spare, or any chunk if `also_used`: its ranges are the
  /// upstream's.
  /// @return its memory, which is the caller's to return; empty if there is no such chunk. O(chunks + slabs).
  [[nodiscard]] byte_range remove_chunk(bool also_used) noexcept;
  /// The ranges that lie in a chunk become spare slabs. @pre each has a record.
  void add_chunk(byte_range added, block_group& holder) noexcept;

  /// Slabs of epochs that are open.
  [[nodiscard]] std::size_t held_slabs() const noexcept { return held_slabs_; }
  /// Any thread.
  [[nodiscard]] bool has_chunks() const noexcept {
    return chunks_.load(std::memory_order_relaxed) != nullptr;
  }
  /// The first range that lies in a chunk, and how many do.
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
  /// Room for lists of the innermost epoch. @throws std::bad_alloc.
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
    std::uint64_t classes = 0;  // a bit for each of which `with_room` is perhaps not null
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
  void insert_spare(epoch_slab& slab) noexcept {
    slab.use.store(epoch_slab::range_use::spare, std::memory_order_release);
    ++slab.chunk->chunk_spare;
    insert(slab, spare_);
  }
  /// A slab that has no blocks any more becomes spare.
  void end_use(epoch_slab& slab) noexcept {
    slab.end();
    insert_spare(slab);
  }
  void end_slab(epoch_slab& slab, std::size_t depth, char const* name, epoch_summary& sum) noexcept;

  epoch_slab* const* innermost_ = none.data();  // `with_room` of the innermost epoch
  epoch_slab_table& table_;
  std::pmr::vector<frame> frames_;
  std::size_t frame_count_ = 0;  // frames_.size(), which is a division by their size
  epoch_slab* spare_ = nullptr;
  std::atomic<epoch_slab*> chunks_{nullptr};  // written with the lock
  std::size_t held_slabs_ = 0;
};

}  // namespace detail
}  // namespace tidemark
