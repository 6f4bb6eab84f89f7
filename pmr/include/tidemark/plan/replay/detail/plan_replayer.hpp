// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_replayer`: the plan of a step and the state of its slots. Owns its tables, but no memory of blocks.
///
/// The owner counts time in requests. A block is born at `now`, which is then incremented, and dies at the
/// `now` of its deallocation. A run serves requests in order. A slot is free if its *predecessors* are clear.
/// They are the slots that last held one of its bytes before it in the plan:
///
///     clear(i) := not live(i), and (died(i) >= begin of the run, or clear(j) for each predecessor j of i)
///
/// A slot that was allocated in this run was clear itself, and clear slots stay clear: hence the first half
/// of the disjunction. While deallocations follow the order of the plan, one comparison shows that all
/// predecessors of a slot are clear. The fast path compares only the next slot and the next deallocation.
/// Slots with bytes of their own fail its comparison. The last slot fails it too, and stands for the next
/// slot while the fast path is paused. The slow path searches further. The owner of the current plan has the
/// position of its run (`fast_path`).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// Serves a step by its plan: request n gets slot n if it fits and no live block has bytes of the slot. The
/// file comment has the rule.
///
/// A slot whose block outlives its step shares no bytes, and is its own predecessor. All slots of one request
/// have one size and one alignment: a block that fits in one slot fits in each.
///
/// Invariants: `live(i) == (died(i) < born(i))`; live slots do not overlap, which the owner checks;
/// `cursor <= requests`; deallocations are ordered by `upper`, and each slot before the next in this order is
/// clear; only the newest slot at an address may be live.
///
/// Thread-safety: one thread at a time.
class plan_replayer {
 public:
  using request_time = std::uint64_t;

  /// A location of the plan, with the birth, death and bytes of its last block.
  struct place {
    std::uintptr_t address = 0;
    std::size_t max_bytes = 0;  // maximum bytes of a block in it
    request_time born = 0;
    request_time died = 0;
    std::size_t bytes = 0;
    std::uint32_t index = 0;

    [[nodiscard]] bool live() const noexcept { return died < born; }
  };
  /// A place and the condition of its reuse.
  struct alignas(64) slot : place {
    std::uint32_t predecessors = 0;               // start of its list in `predecessors_`
    slot* const* deallocations_before = nullptr;  // end of the plan's earlier deallocations
    slot* same_address = nullptr;  // next slot at this address by request; the last links to the first
  };
  static_assert(sizeof(slot) == 64, "a slot is one cache line");

  /// The position of a run: its next request and its next deallocation. The owner of plans has one for its
  /// current plan, so that its fast path does not load the address of the plan.
  class fast_path {
   public:
    /// Returns the next slot if a request fits and its predecessors were deallocated in order; else null.
    /// Call `assign_next` next. @pre The alignment of the plan is at least 16.
    [[nodiscard]] slot* next_in_order(std::size_t bytes, std::size_t align) const noexcept {
      slot* const next = next_;
      if (!fits_in(*next, bytes, align) || next->deallocations_before > next_deallocation_) [[unlikely]]
        return nullptr;
      return next;
    }
    /// Allocates the next slot. @pre The slot is clear.
    void* assign_next(slot& next, std::size_t bytes, request_time& now) noexcept {
      next_ = &next + 1;
      return assign(next, bytes, now);
    }
    /// Deallocates the block at an address if it is next in the order of the plan. @return false, with
    /// nothing changed, if the block is not next.
    [[nodiscard]] bool deallocate_in_order(std::uintptr_t address, request_time now) noexcept {
      slot& next = **next_deallocation_;
      if (next.address != address || !next.live()) [[unlikely]]
        return false;
      ++next_deallocation_;
      end(next, now);
      return true;
    }

   private:
    friend plan_replayer;

    // Only a large alignment needs a test if the compiler knows the request.
    [[nodiscard]] static bool fits_in(slot const& one, std::size_t bytes, std::size_t align) noexcept {
      return bytes <= one.max_bytes &&
             (align <= alignof(std::max_align_t) || (one.address & (align - 1)) == 0);
    }
    void* assign(slot& to, std::size_t bytes, request_time& now) const noexcept {
      to.born = now++;
      to.bytes = bytes;
      if constexpr (tools_are_notified) {
        if (host_accessible_) detail::unpoison(to.address, bytes);
      }
      return reinterpret_cast<void*>(to.address);
    }
    void end(slot& ended, request_time now) const noexcept {
      if constexpr (tools_are_notified) {
        if (host_accessible_) poison(ended.address, ended.max_bytes);
      }
      ended.died = now;
    }

    slot* next_ = nullptr;  // slot of the next request; the last of all while the fast path is paused
    slot* const* next_deallocation_ = nullptr;
    bool host_accessible_ = true;
  };

  /// @pre The plan is valid.
  explicit plan_replayer(step_plan plan);
  plan_replayer(plan_replayer const&) = delete;
  plan_replayer& operator=(plan_replayer const&) = delete;

  /// Returns the position of the run.
  [[nodiscard]] fast_path& position() noexcept { return *position_; }
  /// Moves the position of the run to the owner, until `take_position`. @pre The plan has its position.
  void move_position_to(fast_path& owner) noexcept {
    owner = own_position_;
    position_ = &owner;
  }
  /// Moves the position of the run back to the plan.
  void take_position() noexcept {
    own_position_ = *position_;
    position_ = &own_position_;
  }

  /// Deallocates the block at an address. @return false, with nothing changed, if no live slot begins at the
  /// address.
  [[nodiscard]] bool deallocate(std::uintptr_t address, request_time now) noexcept {
    return position_->deallocate_in_order(address, now) || deallocate_out_of_order(address, now);
  }

  /// Sets the base address of the slots. @pre No slot is live, or the base does not change.
  void bind(std::uintptr_t base, bool host_accessible) noexcept;
  /// Begins a run. The fast path is paused until `enable_fast_path`. @pre `now` is later than all earlier
  /// times.
  void begin(request_time now) noexcept {
    begin_ = now;
    paused_ = slots_.data();
    position_->next_ = last_slot();
    position_->next_deallocation_ = deallocation_order_.data();
  }
  /// Skips to a request; this run does not serve earlier requests any more.
  void advance_to(std::size_t request) noexcept { next() = slots_.data() + request; }

  /// Returns the slots with bytes of their own, by request.
  [[nodiscard]] std::span<std::uint32_t const> own_slots() const noexcept;
  /// Places `own_slots` at these offsets, and all other slots from `others_begin` on. @pre No slot is live.
  /// All offsets are multiples of the required alignments.
  void lay_out(std::span<std::size_t const> own, std::size_t others_begin) noexcept;
  /// Returns the first address of the slots without bytes of their own.
  [[nodiscard]] std::uintptr_t others_begin() const noexcept { return base_ + others_begin_; }
  /// Returns the bytes of the memory for all slots.
  [[nodiscard]] std::size_t height() const noexcept { return height_; }
  /// Makes `next_in_order` never return the slot of this request.
  void exclude_from_fast_path(std::size_t request) noexcept {
    slots_[request].deallocations_before = deallocation_order_.data() + deallocation_order_.size();
  }
  /// Enables or disables `next_in_order`, which returns null while disabled.
  void enable_fast_path(bool enabled) noexcept {
    if (enabled != is_paused()) return;
    if (enabled) {
      position_->next_ = std::exchange(paused_, nullptr);
    } else {
      paused_ = std::exchange(position_->next_, last_slot());
    }
  }

  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  [[nodiscard]] step_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] std::size_t requests() const noexcept { return plan_.requests; }
  /// Returns the next request.
  [[nodiscard]] std::size_t cursor() const noexcept {
    return static_cast<std::size_t>((is_paused() ? paused_ : position_->next_) - slots_.data());
  }
  /// Returns all slots. Slot n is the first slot of request n; further slots of requests follow.
  [[nodiscard]] std::span<slot const> all_slots() const noexcept;
  [[nodiscard]] std::size_t request_of(std::uint32_t slot) const noexcept { return blocks_[slot]->request; }
  /// Returns true if all blocks of this run were deallocated, except blocks that outlive the step. O(1).
  [[nodiscard]] bool all_deallocated() const noexcept {
    return *position_->next_deallocation_ == &slots_.back();
  }
  /// Returns the number of live slots. O(slots).
  [[nodiscard]] std::size_t used_blocks() const noexcept;
  /// Returns the bytes of a request in the plan.
  [[nodiscard]] std::size_t planned_bytes(std::size_t request) const noexcept {
    return blocks_[request]->life.size;
  }
  /// Returns the alignment of the blocks in a slot.
  [[nodiscard]] std::size_t alignment_of(std::uint32_t slot) const noexcept {
    return (std::max)(plan_.alignment, blocks_[slot]->life.alignment);
  }
  /// Returns the largest alignment of all slots.
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }
  /// Returns true if a block fits at a request.
  [[nodiscard]] bool fits(std::size_t request, std::size_t bytes, std::size_t align) const noexcept {
    return request < requests() && bytes <= slots_[request].max_bytes &&
           align <= alignment_of(static_cast<std::uint32_t>(request));
  }
  /// Returns the first clear slot of a request that `is_usable` accepts; null if there is no such slot.
  /// Amortised O(predecessors). @throws std::bad_alloc
  template <class Usable>
  [[nodiscard]] slot* clear_slot(std::size_t request, Usable is_usable) {
    for (std::uint32_t i : own_slots_of(request)) {
      slot& own = slots_[i];
      if (own.live() || !is_usable(own)) continue;
      own.died = own.born;  // a slot that is allocated at the time of its death would be `live`
      return &own;
    }
    if (outlives(static_cast<std::uint32_t>(request))) return nullptr;
    const bool is_clear = search_clear(static_cast<std::uint32_t>(request)) && is_usable(slots_[request]);
    return is_clear ? &slots_[request] : nullptr;
  }
  /// Allocates a slot. @pre The slot is clear.
  void* assign(slot& to, std::size_t bytes, request_time& now) const noexcept {
    return position_->assign(to, bytes, now);
  }
  /// Returns the live slot at an address; null if there is no such slot. O(1), amortised over a run, except
  /// for skipped requests.
  [[nodiscard]] slot* live_at(std::uintptr_t address) noexcept;

  /// Sets the death of a slot's block. A death at its birth detaches the block as a foreign block.
  void set_died(std::uint32_t slot, request_time when) noexcept { slots_[slot].died = when; }

  /// Returns the slots of a request if its blocks outlive the step; else an empty range. O(log such
  /// requests).
  [[nodiscard]] std::span<std::uint32_t const> own_slots_of(std::size_t request) const noexcept;
  /// Returns true if the slot's block outlives its step.
  [[nodiscard]] bool outlives(std::uint32_t slot) const noexcept {
    return predecessors_[slots_[slot].predecessors] == slot;
  }

 private:
  static constexpr std::uintptr_t no_address = (std::numeric_limits<std::uintptr_t>::max)();

  // Blocks are aligned to at least 16.
  [[nodiscard]] static std::size_t hash(std::uintptr_t address) noexcept {
    return fibonacci_hash(address >> 4) >> 32;
  }
  [[nodiscard]] bool is_paused() const noexcept { return paused_ != nullptr; }
  [[nodiscard]] slot*& next() noexcept { return is_paused() ? paused_ : position_->next_; }
  [[nodiscard]] slot* last_slot() noexcept { return &slots_.back(); }
  [[nodiscard]] bool deallocate_out_of_order(std::uintptr_t address, request_time now) noexcept;
  void reorder_deallocation(slot& ended) noexcept;
  [[nodiscard]] bool search_clear(std::uint32_t slot);
  void add_slots();
  void find_predecessors();
  void order_deallocations();
  // Returns the death of its block in the plan.
  [[nodiscard]] std::uint64_t upper_of(slot const* one) const noexcept {
    return blocks_[one->index]->life.upper;
  }

  fast_path own_position_;
  fast_path* position_ = &own_position_;
  slot* paused_ = nullptr;  // slot of the next request while the fast path is paused; else null
  request_time begin_ = 0;
  std::vector<slot> slots_;                  // and a last slot that is always clear and has no address
  std::vector<std::uint32_t> predecessors_;  // lists ended by the last slot of all; the first is empty
  // Slots in the plan's order of deallocation, and the last slot of all. Slots of one time are in the order
  // of the last run that differed.
  std::vector<slot*> deallocation_order_;
  std::vector<slot*> table_;  // by hash of the address: newest slot of the last lookup
  std::size_t mask_ = 0;

  step_plan plan_;
  std::vector<planned_block const*> blocks_;       // by slot, elements of `plan_`
  std::vector<std::uint32_t> deallocation_index_;  // by slot: index in `deallocation_order_`
  std::vector<std::uint32_t> visited_;             // working memory of `search_clear`
  std::vector<std::size_t> offsets_;               // by slot
  std::vector<std::uint32_t> own_slots_;           // by request
  std::size_t origin_ = 0;                         // offset in `plan_` of the first slot without own bytes
  std::size_t others_begin_ = 0;                   // actual offset of `origin_`
  std::size_t height_ = 0;
  std::size_t alignment_ = 1;
  std::uintptr_t base_ = 0;
};

}  // namespace tidemark::detail
