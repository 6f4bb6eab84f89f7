// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_group`: the blocks that die together: those of a thread's open epochs, or those of an `owner`. Owns
/// their list, not their memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <tidemark/detail/brief_lock.hpp>
#include <tidemark/detail/single_writer.hpp>
#include <tidemark/detail/tracked_block.hpp>
#include <tidemark/epoch_stats.hpp>
#include <tidemark/macros.hpp>

namespace tidemark {

class epoch_resource;

namespace detail {

/// A log of tracked blocks in the order in which they came, cut into frames: one for each open epoch, the
/// innermost last.
///
/// A block is of the group if its record names the group and the place in the log where it stands. So a
/// record that is found twice in the log, because its block was given back and came again, counts once, and
/// one that another group holds by now does not count.
///
/// Invariants: `frames[i].first <= frames[i + 1].first <= log.size()`; `used_blocks` and `used_bytes` are
/// sums over the blocks of the group. While one frame is open the log has at most `max(64, 4 * most used
/// blocks)` places, but for what other threads gave back since it grew last; gaps of outer frames stay until
/// these end.
///
/// The group is its thread's, or that of whoever uses the `owner`. Other threads give blocks back, with
/// `remove_from_outside`, which takes the lock; so does the group's thread where it must not meet them: when
/// a frame ends, when a block is kept, and when the log makes room.
class block_group {
 public:
  struct frame {
    std::size_t first;  // in the log
    char const* name;
    std::uint64_t number;  // no other frame of this group ever has it
    bool is_owner;         // not an epoch
    bool is_abandoned;     // to end as soon as it is the innermost
  };

  block_group(epoch_resource const* resource, std::pmr::memory_resource* bookkeeping)
      : resource_{resource}, log_{bookkeeping}, frames_{bookkeeping} {}
  block_group(block_group const&) = delete;
  block_group& operator=(block_group const&) = delete;
  ~block_group() = default;

  /// Null once the resource is gone.
  [[nodiscard]] epoch_resource const* resource() const noexcept {
    return resource_.load(std::memory_order_relaxed);
  }
  /// The resource goes although some thread's list, or an `owner`, still leads to this group: so it stays for
  /// ever, without the memory of its lists. @pre no frame is open.
  void forget_resource() noexcept;

  /// Makes the group the caller's, unless it is somebody's. The resource asks, for a thread or an `owner`.
  [[nodiscard]] bool try_take() noexcept { return !possession_.is_taken() && possession_.try_lock(); }
  /// It is nobody's. @pre it is the caller's, and no frame is open.
  void give_up() noexcept { possession_.unlock(); }

  // ---- frames

  /// Opens a frame for an epoch. @return its number. @throws std::bad_alloc.
  std::uint64_t open(char const* name) { return open(name, false); }
  /// The only frame of a group that is an owner's. @throws std::bad_alloc, unless a frame was there before.
  void open_as_owner(char const* name) { (void)open(name, true); }
  [[nodiscard]] std::size_t depth() const noexcept { return frames_.size(); }
  [[nodiscard]] frame const& innermost() const noexcept { return frames_.back(); }
  /// Lets a frame end as soon as those inside it have.
  void abandon(std::uint64_t number) noexcept { frames_[depth_of(number) - 1].is_abandoned = true; }
  /// The depth of a frame, from 1; 0 if it is not open.
  [[nodiscard]] std::size_t depth_of(std::uint64_t number) const noexcept;
  /// Ends the innermost frame: its kept blocks become those of the frame around it, or nobody's, and the
  /// others are marked as reclaimed. @return records of the latter, null ones among them, good until
  /// `drop_reclaimed`. O(blocks).
  [[nodiscard]] std::span<tracked_block*> end(epoch_summary& summary) noexcept;
  void drop_reclaimed() noexcept { log_.resize(kept_end_); }

  // ---- blocks

  /// Room for one more, so that `track` cannot fail. O(1) amortised. @throws std::bad_alloc.
  void reserve_one() {
    if (log_.size() == log_.capacity()) [[unlikely]]
      make_room();
  }
  /// Takes a block into the innermost frame, as the first moment of a new life. @param before its state.
  /// @pre `reserve_one()`, and the table has noted the block. O(1).
  void track(tracked_block& block, block_state before, std::size_t bytes, std::size_t align) noexcept {
    allocations_.add(1);
    hold(block, bytes, block_state{before.life() + 1, align, block_status::tracked}.noted());
  }
  /// Takes over a block that has a life of its own already. @pre as `track`. O(1).
  void adopt(tracked_block& block, std::size_t bytes, block_state now) noexcept {
    adopted_.add(1);
    hold(block, bytes, now.as(block_status::tracked).noted());
  }

  /// Whether the block stands in the log, or did: to be asked of a block that is held.
  [[nodiscard]] bool holds(tracked_block const& block) const noexcept {
    return block.holder.load(std::memory_order_relaxed) == this;
  }
  /// A block goes, on the group's own thread: given back if its life is over, otherwise let go. O(1).
  void remove(tracked_block& block, block_state then) noexcept;
  /// The same on another thread, unless the block is no more as it was. @return whether it went.
  bool remove_from_outside(tracked_block& block, block_state before, block_state then) noexcept;
  /// Marks a block of that frame as kept. @return whether it is one and was not kept. O(1).
  bool keep(tracked_block& block, std::uint64_t frame_number) noexcept;
  /// The block of that frame in which an address lies, or null. O(blocks of the frame).
  [[nodiscard]] tracked_block* find_around(std::uintptr_t address, std::uint64_t frame_number) const noexcept;

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
    block.bytes.store(bytes, std::memory_order_relaxed);
    block.holder.store(this, std::memory_order_relaxed);
    block.position.store(log_.size(), std::memory_order_relaxed);
    block.store(now);
    log_.push_back(&block);
    const std::size_t used = held_bytes_.add(bytes) - gone_outside_bytes_.value();
    if (used > peak_bytes_.value()) peak_bytes_.set(used);
  }
  std::uint64_t open(char const* name, bool is_owner);
  [[nodiscard]] bool stands_at(tracked_block const& block, std::size_t position) const noexcept {
    return block.load().is_held() && is_at(block, position);
  }
  [[nodiscard]] bool is_at(tracked_block const& block, std::size_t position) const noexcept {
    return holds(block) && block.position.load(std::memory_order_relaxed) == position;
  }
  [[nodiscard]] std::span<tracked_block* const> blocks_of(std::uint64_t frame_number) const noexcept;
  TIDEMARK_COLD void make_room();

  std::atomic<epoch_resource const*> resource_;  // a thread walks its list while another forgets
  block_group* next_forgotten_ = nullptr;        // so that a leak checker finds it
  brief_lock possession_;                        // taken while it is some thread's or owner's
  brief_lock lock_;
  std::pmr::vector<tracked_block*> log_;  // null: a block that went
  std::pmr::vector<frame> frames_;
  std::size_t kept_end_ = 0;  // between `end` and `drop_reclaimed`
  std::uint64_t frame_numbers_ = 0;

  // Of this thread. `held_bytes_` falls when it gives back, reclaims or lets go.
  single_writer<std::uint64_t> allocations_, adopted_, deallocations_, reclaimed_, promoted_, let_go_;
  single_writer<std::size_t> held_bytes_, peak_bytes_;
  // Of the others, which write them with the lock held.
  single_writer<std::uint64_t> gone_outside_, let_go_outside_;
  single_writer<std::size_t> gone_outside_bytes_;
};

/// The groups of the epochs that are open on this thread, one for each resource.
// Initial-exec, because the general model is a call of a function.
TIDEMARK_INITIAL_EXEC extern constinit thread_local block_group* open_groups;

}  // namespace detail
}  // namespace tidemark
