// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_group`: blocks that are reclaimed together, of a thread's open epochs or of a `buffer_group`. Owns
/// the list of the blocks, and lists of slabs with small blocks, but no memory of blocks.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/epoch/detail/address_table.hpp>
#include <tidemark/epoch/detail/epoch_slab.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark {

class epoch_resource;
struct epoch_stats;
struct epoch_summary;

namespace detail {

using epoch_slab_table = address_table<epoch_slab, std::countr_zero(epoch_slab::range_bytes)>;

/// A log of tracked blocks, cut into frames, and the slabs of small blocks, which are not in the log. Each
/// open epoch has a frame. A block belongs to the group if its record names the group and its position in the
/// log.
///
/// Invariants: `frames[i].first <= frames[i + 1].first <= log.size()`; `used_blocks` and `used_bytes` are
/// sums over the blocks of the group; a slab is free, kept, or in the list of one frame; slabs in `with_room`
/// are not full.
///
/// Thread-safety: one owner thread at a time. Other threads deallocate, which takes the lock. The owner takes
/// the lock to end a frame, keep a block, compact the log, and change the use of a slab.
class block_group {
 public:
  static constexpr std::size_t max_classes = 40;  // up to epoch_slab::max_block_bytes
  struct frame {
    std::size_t first = 0;  // index in the log
    char const* name = nullptr;
    bool is_buffer_group = false;                      // true for a `buffer_group`, false for an epoch
    bool is_abandoned = false;                         // the frame ends as soon as it is the innermost
    epoch_slab* slabs = nullptr;                       // all slabs of the epoch
    std::array<epoch_slab*, max_classes> with_room{};  // slabs with free blocks, by class
  };

  /// @param table owns the records of slabs. @throws std::bad_alloc
  block_group(epoch_resource const* resource, epoch_slab_table& table, std::pmr::memory_resource* bookkeeping)
      : resource_{resource}, table_{table}, log_{bookkeeping}, frames_{1, bookkeeping} {}
  block_group(block_group const&) = delete;
  block_group& operator=(block_group const&) = delete;

  /// Null once the resource is destroyed.
  [[nodiscard]] epoch_resource const* resource() const noexcept {
    return resource_.load(std::memory_order_relaxed);
  }
  /// Detaches the group from its resource. Called if the resource is destroyed while a thread's list or a
  /// `buffer_group` still points to the group. The group is never freed. Its lists are freed unless the group
  /// may be inconsistent. @pre no frame is open, or the group may be inconsistent
  void detach_resource() noexcept;

  /// Acquires the group for a thread or a `buffer_group`. @return false if the group is in use
  [[nodiscard]] bool try_acquire() noexcept { return !possession_.is_locked() && possession_.try_lock(); }
  /// Releases the group. @pre the group is acquired, and no frame is open
  void release() noexcept { possession_.unlock(); }

  // ---- forks

  /// Marks an acquired group as possibly inconsistent, in a forked child. Another thread may have been
  /// changing its lists, or a buffer group may own it.
  void mark_inconsistent_if_acquired() noexcept { may_be_inconsistent_ = possession_.is_locked(); }
  /// True if the lists must not be read.
  [[nodiscard]] bool may_be_inconsistent() const noexcept { return may_be_inconsistent_; }
  /// Marks the group as consistent, because the `buffer_group` that uses the group exists and has finished.
  void mark_consistent() noexcept { may_be_inconsistent_ = false; }

  // ---- frames

  /// Opens a frame of an epoch, or the only frame of a buffer group. @return its depth, from 1. @throws
  /// std::bad_alloc, but never for the first frame or for a depth that was open before
  std::size_t open(char const* name, bool is_buffer_group = false) {
    if (depth_ == frames_.size()) [[unlikely]]
      frames_.emplace_back();
    innermost_ = &frames_[depth_];
    innermost_->first = log_end_;
    innermost_->name = name;
    innermost_->is_buffer_group = is_buffer_group;
    innermost_->is_abandoned = false;
    return ++depth_;
  }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] frame const& innermost() const noexcept { return *innermost_; }
  /// Makes a frame end as soon as the frames inside it have ended.
  void abandon(std::size_t depth) noexcept { frames_[depth - 1].is_abandoned = true; }
  /// Ends the innermost frame. Kept blocks move to the outer frame, or leave the group if there is no outer
  /// frame. All other blocks are marked as reclaimed. @param free_chunks set to the result of
  /// `remove_chunks(false)` @return records of the reclaimed blocks, mixed with nulls, valid until
  /// `drop_reclaimed`. O(blocks).
  [[nodiscard]] std::span<tracked_block*> end(epoch_summary& summary, epoch_slab*& free_chunks) noexcept;
  void drop_reclaimed() noexcept { log_end_ = kept_end_; }

  // ---- blocks

  /// Makes room for one block, so that `track` cannot fail. O(1) amortised. @throws std::bad_alloc
  void reserve_one() {
    if (log_end_ == log_.size()) [[unlikely]]
      make_room();
  }
  /// Returns the block that an earlier epoch had at the next position, or null: a step that repeats has the
  /// same addresses. @pre `reserve_one()` was called
  [[nodiscard]] tracked_block* expected() const noexcept { return log_[log_end_]; }
  /// Adds a block to the innermost frame and begins a generation. @param before the current state of the
  /// block
  /// @pre `reserve_one()` was called, and the address is in the filter. O(1).
  void track(tracked_block& block, block_state before, std::size_t bytes, std::size_t align) noexcept {
    allocations_.add(1);
    set_owner(block, bytes, block_state{before.generation() + 1, align, block_status::tracked}.in_filter());
  }
  /// Adds a block in its current generation. @pre as `track`. O(1).
  void adopt(tracked_block& block, std::size_t bytes, block_state now) noexcept {
    adopted_.add(1);
    set_owner(block, bytes, now.as(block_status::tracked).in_filter());
  }

  /// True if the group holds the block. @pre the block is held
  [[nodiscard]] bool holds(tracked_block const& block) const noexcept {
    return block.holder.load(std::memory_order_relaxed) == this;
  }
  /// Removes a block. Counts a deallocation if `then` is another generation, otherwise a block that was let
  /// go. O(1).
  /// @param by_owner true on the group's own thread. Another thread removes the block unless it has changed.
  /// @return true if the block was removed
  bool remove(tracked_block& block, block_state before, block_state then, bool by_owner) noexcept;
  /// Marks a block of the frame at `depth` as kept. @return true if the block is in the frame and was not
  /// kept. O(1).
  bool keep(tracked_block& block, std::size_t depth) noexcept;
  /// Returns the block of that frame that contains an address; null if there is no such block. O(blocks of
  /// the frame).
  [[nodiscard]] tracked_block* find_around(std::uintptr_t address, std::size_t depth) const noexcept;

  // ---- small blocks, in slabs

  /// Allocates a block of the innermost epoch; null if no slab in `with_room` has its size. O(1).
  [[nodiscard]] void* try_allocate_small(std::size_t index, std::size_t bytes) noexcept {
    epoch_slab* const slab = innermost_->with_room[index];
    if (slab == nullptr) return nullptr;
    allocations_.add(1);
    count_held(slab->block_bytes);
    void* const block = slab->allocate();
    if (slab->is_full()) [[unlikely]]
      innermost_->with_room[index] = slab->next_with_room;
    unpoison(address_of(block), bytes);
    return block;
  }
  /// Returns a held slab of the group, if it is the last one set for its place; null otherwise. It saves most
  /// look-ups in the table: a thread deallocates from few slabs at a time.
  [[nodiscard]] epoch_slab* find_recent(std::uintptr_t range) const noexcept {
    epoch_slab* const slab = recent_[place_of(range)];
    return slab != nullptr && slab->address == range ? slab : nullptr;
  }
  /// @pre the group holds the slab
  void set_recent(epoch_slab& slab) noexcept { recent_[place_of(slab.address)] = &slab; }
  /// Makes room for a small block: begins a free slab, or visits all slabs for blocks that other threads
  /// deallocated. @return false if there is no free slab. O(slabs of the epochs), amortised O(1).
  [[nodiscard]] TIDEMARK_COLD bool find_room(std::size_t index, std::size_t block_bytes) noexcept;
  /// Divides a chunk into free slabs, the first of them for a class of the innermost epoch. Adds new ranges to
  /// the table and the filter. @throws whatever the bookkeeping memory throws; the group is unchanged then
  void add_chunk(byte_range added, counting_filter& ranges, std::size_t index, std::size_t block_bytes);
  /// Returns the bytes of the next chunk: one slab for each held slab, but at least 3 and at most 63, and one
  /// more slab for alignment. Returns 0 after `request_no_chunk`.
  [[nodiscard]] std::size_t next_chunk_bytes() const noexcept;
  /// Stops requests for chunks until the outermost epoch ends, because the upstream has no memory.
  void request_no_chunk() noexcept { requests_chunks_ = false; }
  /// Removes the chunks without used slabs, or all chunks if `also_used`. Does nothing while an epoch has
  /// slabs. Their ranges become the upstream's.
  /// @param has_lock true if the caller has the group's lock
  /// @return the first slab of each removed chunk, newest first, linked by `next_chunk`. O(slabs).
  [[nodiscard]] epoch_slab* remove_chunks(bool also_used, bool has_lock = false) noexcept;
  /// Deallocates a live block of a held slab, on the group's own thread.
  void deallocate_small(epoch_slab& slab, std::size_t i) noexcept {
    if (slab.is_full()) [[unlikely]]
      add_with_room(slab);
    slab.deallocate(i);
    poison_block(slab, i);
    deallocations_.add(1);
    held_bytes_.subtract(slab.block_bytes);
  }
  enum class small_result : std::uint8_t { deallocated, chunk_is_free, of_another_class, late };
  /// Deallocates a block of a slab on another thread, or a block kept by an outermost epoch. The slab may be
  /// any slab that was ever the group's.
  [[nodiscard]] small_result deallocate_small_from_outside(epoch_slab& slab, void* block,
                                                           std::size_t index) noexcept;
  /// Marks the block that contains an address as kept. @return true if the block belongs to the epoch at
  /// `depth` and was not kept
  bool promote_small(epoch_slab& slab, std::uintptr_t address, std::size_t depth) noexcept;

  // ---- counts, for any thread

  /// Number of blocks in the group.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Adds this group's counts. Fields may be from different moments while other threads run.
  void add_to(epoch_stats& stats) const noexcept;
  /// Returns the first broken invariant as a formula; null if all hold. O(log). @pre no other thread uses the
  /// group
  [[nodiscard]] char const* broken_invariant() const noexcept;

  block_group* outer_on_thread = nullptr;  // the next of the thread's groups, each of another resource

 private:
  void add_with_room(epoch_slab& slab) noexcept {
    slab.next_with_room = std::exchange(frames_[slab.depth - 1].with_room[slab.class_index], &slab);
  }
  [[nodiscard]] static std::size_t place_of(std::uintptr_t range) noexcept {
    return range / epoch_slab::range_bytes % recent_places;
  }
  void set_owner(tracked_block& block, std::size_t bytes, block_state now) noexcept {
    block.set_owner(this, log_end_, bytes, now);
    log_[log_end_++] = &block;
    count_held(bytes);
  }
  void count_held(std::size_t bytes) noexcept {
    const std::size_t used = held_bytes_.add(bytes) - removed_outside_bytes_.value();
    if (used > peak_bytes_.value()) peak_bytes_.set(used);
  }
  [[nodiscard]] bool is_logged_at(tracked_block const& block, std::size_t position) const noexcept {
    return block.load().is_held() && is_at(block, position);
  }
  [[nodiscard]] bool is_at(tracked_block const& block, std::size_t position) const noexcept {
    return holds(block) && block.position.load(std::memory_order_relaxed) == position;
  }
  // Returns the end of the frame at `depth` in the log.
  [[nodiscard]] std::size_t end_of(std::size_t depth) const noexcept {
    return depth < depth_ ? frames_[depth].first : log_end_;
  }
  // While one frame is open, the log has at most `max(64, 4 * peak used blocks)` places, not counting blocks
  // that other threads deallocated since the log last grew. Gaps of outer frames stay until these frames end.
  TIDEMARK_COLD void make_room();
  static void poison_block(epoch_slab const& slab, std::size_t i) noexcept {
    if (check_level < 2 && !tools_are_notified) return;  // without a load of the atomic numbers
    const std::uintptr_t block = slab.address + i * slab.block_bytes;
    // A tool reports accesses itself, and would report the fill of a block that was poisoned before.
    if (check_level >= 2 && !tools_are_notified)
      std::memset(reinterpret_cast<void*>(block), freed_fill, slab.block_bytes);
    poison(block, slab.block_bytes);
  }

  // ---- with the lock

  // Adds a held slab to the lists of its frame.
  void add_slab(epoch_slab& slab) noexcept {
    slab.next = std::exchange(frames_[slab.depth - 1].slabs, &slab);
    if (!slab.is_full()) add_with_room(slab);
  }
  // Counts a held slab out, because it becomes free or kept.
  void remove_held(epoch_slab& slab) noexcept {
    --held_slabs_;
    if (epoch_slab*& recent = recent_[place_of(slab.address)]; recent == &slab) recent = nullptr;
  }
  // Makes a slab without blocks free.
  void free_slab(epoch_slab& slab) noexcept {
    slab.use.store(epoch_slab::range_use::free, std::memory_order_release);
    slab.next = std::exchange(free_slabs_, &slab);
  }
  // Removes the slabs of a frame from its lists, and calls `visit(slab)` for each.
  template <class Visit>
  static void drain_slabs(frame& of, Visit visit) noexcept {
    if (of.slabs == nullptr) return;
    of.with_room = {};
    for (epoch_slab* slab = std::exchange(of.slabs, nullptr); slab != nullptr;) {
      epoch_slab& taken = *slab;
      slab = slab->next;
      visit(taken);
    }
  }
  // Finds the blocks that were deallocated in slabs, and frees slabs without blocks. O(slabs).
  void collect_slabs() noexcept;
  void end_slab(epoch_slab& slab, char const* name, epoch_summary& sum) noexcept;
  // Begins a slab of the innermost epoch. @pre a slab is free
  void begin_slab(std::size_t index, std::size_t block_bytes) noexcept;

  std::atomic<epoch_resource const*> resource_;  // atomic: a thread reads its list during `detach_resource`
  epoch_slab_table& table_;
  brief_lock possession_;             // taken while a thread or buffer_group uses the group
  bool may_be_inconsistent_ = false;  // since a fork
  // Never held during calls to other code. A leak checker reaches a forgotten group through the list of
  // forks.
  fork_safe<brief_lock> lock_;
  // A record that is twice in the log counts once, and a record that another group holds does not count.
  std::pmr::vector<tracked_block*> log_;  // null: a block that was removed
  std::size_t log_end_ = 0;               // places behind it have blocks of earlier epochs
  std::pmr::vector<frame> frames_;        // the first `depth_` are open; the others have no slabs
  std::size_t depth_ = 0;
  frame* innermost_ = nullptr;  // null or `&frames_[depth_ - 1]`
  std::size_t kept_end_ = 0;    // valid between `end` and `drop_reclaimed`
  epoch_slab* free_slabs_ = nullptr;
  std::atomic<epoch_slab*> chunks_{nullptr};  // written with the lock
  std::size_t held_slabs_ = 0;                // slabs of open epochs
  bool requests_chunks_ = true;
  // Held slabs, each at the place of its range; null if a place has none.
  static constexpr std::size_t recent_places = 64;
  std::array<epoch_slab*, recent_places> recent_{};
  std::uint64_t collected_ = 0;  // deallocations before the last `collect_slabs`

  // Written by the group's thread. `held_bytes_` falls when that thread deallocates, reclaims or lets go.
  single_writer<std::uint64_t> allocations_, adopted_, deallocations_, reclaimed_, promoted_, let_go_;
  single_writer<std::size_t> held_bytes_, peak_bytes_;
  // Written by other threads with the lock held.
  single_writer<std::uint64_t> deallocations_outside_, let_go_outside_;
  single_writer<std::size_t> removed_outside_bytes_;
};

/// The groups with epochs open on this thread, one for each resource.
extern constinit thread_local block_group* open_groups;

}  // namespace detail
}  // namespace tidemark
