// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_group`: the blocks that die together: those of a thread's open epochs, or those of a
/// `buffer_group`. Owns their list, not their memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/epoch_slabs.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark {

class epoch_resource;
struct epoch_stats;
struct epoch_summary;

namespace detail {

/// A log of tracked blocks in the order in which they were tracked, cut into frames: one for each open epoch,
/// the innermost last. Besides, small blocks in slabs of the epochs, which have no records.
///
/// A block is of the group if its record names the group and its place in the log. So a record that is twice
/// in the log, because its block was deallocated and its address allocated again, counts once, and one that
/// another group holds by now does not count.
///
/// Invariants: `frames[i].first <= frames[i + 1].first <= log.size()`; `used_blocks` and `used_bytes` are
/// sums over the blocks of the group, where one in a slab counts with the size of its class. While one frame
/// is open the log has at most `max(64, 4 * most used blocks)` places, but for what other threads deallocated
/// since it grew last; gaps of outer frames stay until these end.
///
/// One thread at a time uses the group: that of the epochs, or the user of the `buffer_group`. Other threads
/// deallocate blocks with `remove_from_outside`, which takes the lock; so does the group's thread where it
/// must exclude them: when a frame ends, when a block is kept, and when the log makes room.
class block_group {
 public:
  struct frame {
    std::size_t first;  // in the log
    char const* name;
    bool is_buffer_group;  // not an epoch
    bool is_abandoned;     // to end as soon as it is the innermost
  };

  /// @throws std::bad_alloc
  block_group(epoch_resource const* resource, epoch_slab_table& slabs, std::pmr::memory_resource* bookkeeping)
      : resource_{resource}, log_{bookkeeping}, frames_{bookkeeping}, slabs_{slabs, bookkeeping} {
    frames_.reserve(1);
  }
  block_group(block_group const&) = delete;
  block_group& operator=(block_group const&) = delete;
  ~block_group() = default;

  /// Null once the resource is gone.
  [[nodiscard]] epoch_resource const* resource() const noexcept {
    return resource_.load(std::memory_order_relaxed);
  }
  /// The resource is destroyed while a thread's list or a `buffer_group` still leads to this group, which
  /// then stays for ever, without the memory of its lists unless it is in doubt. @pre no frame is open, or in
  /// doubt
  void forget_resource() noexcept;

  /// Acquires the group for a thread or a `buffer_group`. @return false: it is in use
  [[nodiscard]] bool try_acquire() noexcept { return !possession_.is_taken() && possession_.try_lock(); }
  /// @pre it was acquired, and no frame is open.
  void release() noexcept { possession_.unlock(); }

  // ---- forks

  /// In a child: another thread may have been changing the lists, or it is a buffer group's.
  void doubt_unless_free() noexcept { is_in_doubt_ = possession_.is_taken(); }
  /// Whether its lists may be looked into.
  [[nodiscard]] bool is_in_doubt() const noexcept { return is_in_doubt_; }
  /// The `buffer_group` that uses it exists and is done with it.
  void trust() noexcept { is_in_doubt_ = false; }

  // ---- frames

  /// Opens a frame, of an epoch or as the only one of a buffer group. @return its depth, from 1. @throws
  /// std::bad_alloc, unless it is the first or as many frames were open before.
  std::size_t open(char const* name, bool is_buffer_group = false) {
    frames_.push_back({log_.size(), name, is_buffer_group, false});
    slabs_.set_depth(frames_.size());
    return frames_.size();
  }
  [[nodiscard]] std::size_t depth() const noexcept { return frames_.size(); }
  [[nodiscard]] frame const& innermost() const noexcept { return frames_.back(); }
  /// Lets a frame end as soon as those inside it have.
  void abandon(std::size_t depth) noexcept { frames_[depth - 1].is_abandoned = true; }
  /// Ends the innermost frame: its kept blocks move to the frame around it, or out of the group, and the
  /// others are marked as reclaimed. @return records of the latter, null ones among them, valid until
  /// `drop_reclaimed`. O(blocks).
  [[nodiscard]] std::span<tracked_block*> end(epoch_summary& summary) noexcept;
  void drop_reclaimed() noexcept { log_.resize(kept_end_); }

  // ---- blocks

  /// Room for one more, so that `track` cannot fail. O(1) amortised. @throws std::bad_alloc.
  void reserve_one() {
    if (log_.size() == log_.capacity()) [[unlikely]]
      make_room();
  }
  /// Takes a block into the innermost frame, and begins a generation. @param before its state.
  /// @pre `reserve_one()`, and the address is in the filter. O(1).
  void track(tracked_block& block, block_state before, std::size_t bytes, std::size_t align) noexcept {
    allocations_.add(1);
    hold(block, bytes, block_state{before.generation() + 1, align, block_status::tracked}.in_filter());
  }
  /// Takes over a block in its present generation. @pre as `track`. O(1).
  void adopt(tracked_block& block, std::size_t bytes, block_state now) noexcept {
    adopted_.add(1);
    hold(block, bytes, now.as(block_status::tracked).in_filter());
  }

  /// Whether a held block is in the group.
  [[nodiscard]] bool holds(tracked_block const& block) const noexcept {
    return block.holder.load(std::memory_order_relaxed) == this;
  }
  /// Removes a block, on the group's own thread: deallocated if `then` is another generation, else let go.
  /// O(1).
  void remove(tracked_block& block, block_state then) noexcept;
  /// The same on another thread, unless the block has changed. @return whether it was removed.
  bool remove_from_outside(tracked_block& block, block_state before, block_state then) noexcept;
  /// Marks a block of the frame at that depth as kept. @return whether it is one and was not kept. O(1).
  bool keep(tracked_block& block, std::size_t depth) noexcept;
  /// The block of that frame in which an address lies, or null. O(blocks of the frame).
  [[nodiscard]] tracked_block* find_around(std::uintptr_t address, std::size_t depth) const noexcept;

  // ---- small blocks, in slabs

  [[nodiscard]] bool has_chunks() const noexcept { return slabs_.has_chunks(); }
  /// A block of the innermost epoch; null if no slab has room. O(1).
  [[nodiscard]] void* take_small(std::size_t index, std::size_t bytes) noexcept {
    epoch_slab* const slab = slabs_.with_room(index);
    if (slab == nullptr) return nullptr;
    allocations_.add(1);
    count_held(slab->block_bytes);
    return slabs_.take(*slab, bytes);
  }
  /// The same after looking for slabs with room. O(slabs of the epoch), amortised O(1). @throws
  /// std::bad_alloc
  [[nodiscard]] TIDEMARK_COLD void* take_small_of_spare(std::size_t index, std::size_t bytes,
                                                        std::size_t block_bytes);
  /// A chunk becomes slabs.
  void add_chunk(byte_range added) noexcept;
  /// Bytes of the next chunk: as many slabs as are held, 3 to 63, and one for the alignment; 0 after
  /// `request_no_chunk`.
  [[nodiscard]] std::size_t next_chunk_bytes() const noexcept;
  /// The upstream has no memory for a chunk: no further one is requested until the outermost epoch ends.
  void request_no_chunk() noexcept { requests_chunks_ = false; }
  /// Removes a chunk that no epoch needs, or any if `also_used`; empty if there is none.
  [[nodiscard]] byte_range remove_chunk(bool also_used = false) noexcept;
  /// Deallocates a live block of a slab, on the group's own thread.
  void deallocate_small(epoch_slab& slab, std::size_t i) noexcept {
    slabs_.deallocate(slab, i);
    deallocations_.add(1);
    held_bytes_.subtract(slab.block_bytes);
    if (epoch_slabs::is_superfluous(slab)) make_spare(slab);
  }
  enum class small_result : std::uint8_t { deallocated, chunk_is_spare, of_another_class, late };
  /// The same on another thread, or of a block that was kept outermost, of any slab that was the group's.
  [[nodiscard]] small_result deallocate_small_from_outside(epoch_slab& slab, void* block,
                                                           std::size_t index) noexcept;
  /// Marks the block around an address as kept. @return whether it is one of the epoch at that depth and was
  /// not.
  bool keep_small(epoch_slab& slab, std::uintptr_t address, std::size_t depth) noexcept;

  // ---- counts, for any thread

  /// Blocks in it.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Adds this group's counts. Fields may be of different moments while other threads are at work.
  void add_to(epoch_stats& stats) const noexcept;
  /// The first invariant that does not hold, as a formula; null if all do. O(log). The caller keeps others
  /// away.
  [[nodiscard]] char const* broken_invariant() const noexcept;

  block_group* outer_on_thread = nullptr;  // the next of the thread's groups, each of another resource

 private:
  void hold(tracked_block& block, std::size_t bytes, block_state now) noexcept {
    block.hold(this, log_.size(), bytes, now);
    if (log_.size() == log_.capacity()) __builtin_unreachable();  // `reserve_one` has looked
    log_.push_back(&block);
    count_held(bytes);
  }
  void count_held(std::size_t bytes) noexcept {
    const std::size_t used = held_bytes_.add(bytes) - gone_outside_bytes_.value();
    if (used > peak_bytes_.value()) peak_bytes_.set(used);
  }
  TIDEMARK_COLD void make_spare(epoch_slab& slab) noexcept;
  [[nodiscard]] bool stands_at(tracked_block const& block, std::size_t position) const noexcept {
    return block.load().is_held() && is_at(block, position);
  }
  [[nodiscard]] bool is_at(tracked_block const& block, std::size_t position) const noexcept {
    return holds(block) && block.position.load(std::memory_order_relaxed) == position;
  }
  // The place in the log behind the frame at that depth.
  [[nodiscard]] std::size_t end_of(std::size_t depth) const noexcept {
    return depth < frames_.size() ? frames_[depth].first : log_.size();
  }
  TIDEMARK_COLD void make_room();

  std::atomic<epoch_resource const*> resource_;  // a thread walks its list while another forgets
  brief_lock possession_;                        // taken while a thread or buffer_group uses it
  bool is_in_doubt_ = false;                     // since a fork
  // Never held while anything else is called. A leak checker finds a forgotten group by the list of forks.
  fork_safe<brief_lock> lock_;
  std::pmr::vector<tracked_block*> log_;  // null: a block that was removed
  std::pmr::vector<frame> frames_;
  std::size_t kept_end_ = 0;  // between `end` and `drop_reclaimed`
  epoch_slabs slabs_;
  bool requests_chunks_ = true;
  std::size_t uncollected_ = 0;  // blocks in slabs that others deallocated since the last `collect`

  // Written by the group's thread. `held_bytes_` falls when it deallocates, reclaims or lets go.
  single_writer<std::uint64_t> allocations_, adopted_, deallocations_, reclaimed_, promoted_, let_go_;
  single_writer<std::size_t> held_bytes_, peak_bytes_;
  // Written by other threads, with the lock held.
  single_writer<std::uint64_t> gone_outside_, let_go_outside_;
  single_writer<std::size_t> gone_outside_bytes_;
};

/// The groups of the epochs that are open on this thread, one for each resource.
extern constinit thread_local block_group* open_groups;

}  // namespace detail
}  // namespace tidemark
