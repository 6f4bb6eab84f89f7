// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_replayer`: a plan of a step, and which of its slots are taken. Owns its tables, and no memory of
/// blocks.
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

/// Serves a step by its plan: the n-th request gets the n-th slot, if it fits there and nothing lives in
/// its bytes.
///
/// Time is counted in requests, by the owner: a block is born at `now`, which then goes on by one, and
/// dies at the `now` of its deallocation. The slot of a request shares bytes only with slots of requests
/// before and behind it, and requests of a run are served in order. Its bytes are free if its
/// *predecessors* are clear, the slots that held one of its bytes last before it, by the plan:
///
///     clear(i) := not live(i), and (died(i) >= begin of the run, or clear(j) for each predecessor j of i)
///
/// A slot that was allocated in this run was clear itself, and what was clear stays so: hence the first
/// half of the disjunction, which is all that is looked at first. Before that, deallocations are compared
/// with their order in the plan: as long as it holds, one comparison says that all predecessors of a slot
/// are clear.
///
/// A slot whose block outlives its step has bytes that no other has, and is its own predecessor. All
/// slots of one request are of one size and alignment, so that what fits in one fits in each.
///
/// The fast path looks at the next slot and at the next deallocation alone. Slots with bytes of their own,
/// and the slot behind all others, which is the next slot while the fast path is paused, are clear by no
/// comparison. The slow path searches further.
///
/// Invariants: `live(i) == (died(i) < born(i))`; live slots do not overlap, which the owner checks;
/// `cursor <= requests`; each slot before the next one in the order of deallocations is clear, and that
/// order is one by `upper`; of the slots at one address none but the newest is live.
///
/// One thread at a time.
class plan_replayer {
 public:
  using request_time = std::uint64_t;

  /// A place of the plan, and its last block: when it was born and died, and its bytes.
  struct place {
    std::uintptr_t address = 0;
    std::size_t max_bytes = 0;  // that fit in it
    request_time born = 0;
    request_time died = 0;
    std::size_t bytes = 0;
    std::uint32_t index = 0;

    [[nodiscard]] bool live() const noexcept { return died < born; }
  };
  /// A place, and what must be clear before it.
  struct alignas(64) slot : place {
    std::uint32_t predecessors = 0;               // where its list begins in `predecessors_`
    slot* const* deallocations_before = nullptr;  // the end of those before it in the plan, predecessors too
    slot* same_address = nullptr;  // the next that has it, by request, and behind the last the first
  };
  static_assert(sizeof(slot) == 64, "a slot is one cache line");

  /// @pre the plan is valid.
  explicit plan_replayer(step_plan plan);
  plan_replayer(plan_replayer const&) = delete;
  plan_replayer& operator=(plan_replayer const&) = delete;

  // ---- the fast path -----------------------------------------------------------------------------------

  /// The next slot, if a request fits there and its predecessors were deallocated in order; else null. To
  /// be taken. @pre the plan aligns to 16 at least
  [[nodiscard]] slot* next_in_order(std::size_t bytes, std::size_t align) noexcept {
    slot* const next = next_;
    if (!fits_in(*next, bytes, align) || next->deallocations_before > next_deallocation_) [[unlikely]]
      return nullptr;
    return next;
  }
  /// Allocates the next slot. @pre it is clear
  void* take(slot& next, std::size_t bytes, request_time& now) noexcept {
    next_ = &next + 1;
    return assign(next, bytes, now);
  }

  /// Deallocates the block at an address, if it is the next in the order of the plan. @return false, with
  /// nothing changed, if not.
  [[nodiscard]] bool deallocate_in_order(std::uintptr_t address, request_time now) noexcept {
    slot& next = **next_deallocation_;
    if (next.address != address || !next.live()) [[unlikely]]
      return false;
    ++next_deallocation_;
    end(next, now);
    return true;
  }
  /// Deallocates the block at an address. @return false, with nothing changed, if no live slot begins
  /// there.
  [[nodiscard]] bool deallocate(std::uintptr_t address, request_time now) noexcept {
    return deallocate_in_order(address, now) || deallocate_out_of_order(address, now);
  }

  // ---- off the fast path ---------------------------------------------------------------------------

  /// Sets where the slots lie. @pre none is live, or they lie there already.
  void bind(std::uintptr_t base, bool host_accessible) noexcept;
  /// A run begins. @pre `now` is later than all that was.
  void begin(request_time now) noexcept {
    begin_ = now;
    position() = slots_.data();
    next_deallocation_ = deallocation_order_.data();
  }
  /// Skips to a request: those before it are not served any more in this run.
  void advance_to(std::size_t request) noexcept { position() = slots_.data() + request; }

  /// Slots with bytes of their own, by request.
  [[nodiscard]] std::span<std::uint32_t const> own_slots() const noexcept { return own_slots_; }
  /// Lays `own_slots` at these offsets, and all others from `others_begin` on. @pre no slot is live; all are
  /// multiples of the alignments that are needed
  void lay_out(std::span<std::size_t const> own, std::size_t others_begin) noexcept;
  /// Address from which on the slots lie that have no bytes of their own.
  [[nodiscard]] std::uintptr_t others_begin() const noexcept { return base_ + others_begin_; }
  /// Bytes of the memory that holds all slots.
  [[nodiscard]] std::size_t height() const noexcept {
    return (std::max)(plan_.height, origin_) - origin_ + others_begin_;
  }
  /// `next_in_order` does not return the slot of this request.
  void exclude_from_fast_path(std::size_t request) noexcept {
    slots_[request].deallocations_before = deallocation_order_.data() + deallocation_order_.size();
  }
  /// Makes `next_in_order` return slots, or none.
  void enable_fast_path(bool enabled) noexcept {
    if (enabled != is_paused()) return;
    if (enabled) {
      next_ = std::exchange(paused_, nullptr);
    } else {
      paused_ = std::exchange(next_, &slots_.back());
    }
  }

  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  [[nodiscard]] step_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] std::size_t requests() const noexcept { return plan_.requests; }
  /// The next request.
  [[nodiscard]] std::size_t cursor() const noexcept {
    return static_cast<std::size_t>((is_paused() ? paused_ : next_) - slots_.data());
  }
  /// The first slot of request n is n; further ones of requests come behind.
  [[nodiscard]] std::span<slot const> all_slots() const noexcept {
    return {slots_.data(), slots_.size() - 1};
  }
  [[nodiscard]] std::size_t request_of(std::uint32_t slot) const noexcept { return blocks_[slot]->request; }
  /// True only if all blocks of this run were deallocated, but those that outlive the step. O(1).
  [[nodiscard]] bool all_deallocated() const noexcept { return *next_deallocation_ == &slots_.back(); }
  /// Slots that are live now. O(slots).
  [[nodiscard]] std::size_t used_blocks() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(all_slots(), &slot::live));
  }
  /// Bytes of a request when the plan was made.
  [[nodiscard]] std::size_t planned_bytes(std::size_t request) const noexcept {
    return blocks_[request]->life.size;
  }
  /// Alignment of the blocks in a slot.
  [[nodiscard]] std::size_t alignment_of(std::uint32_t slot) const noexcept {
    return (std::max)(plan_.alignment, blocks_[slot]->life.alignment);
  }
  /// The largest alignment of all.
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }
  /// True if a block fits at a request.
  [[nodiscard]] bool fits(std::size_t request, std::size_t bytes, std::size_t align) const noexcept {
    return request < requests() && bytes <= slots_[request].max_bytes &&
           align <= alignment_of(static_cast<std::uint32_t>(request));
  }
  /// The first slot of a request that is clear and that `is_usable` takes; null if none is. Amortised
  /// O(predecessors). @throws std::bad_alloc
  template <class Usable>
  [[nodiscard]] slot* clear_slot(std::size_t request, Usable is_usable) {
    for (std::uint32_t i : own_slots_of(request)) {
      slot& own = slots_[i];
      if (own.live() || !is_usable(own)) continue;
      own.died = own.born;  // it may be allocated at the very time of its death, and is `live` then
      return &own;
    }
    if (outlives(static_cast<std::uint32_t>(request))) return nullptr;
    const bool is_clear = search_clear(static_cast<std::uint32_t>(request)) && is_usable(slots_[request]);
    return is_clear ? &slots_[request] : nullptr;
  }
  /// Allocates a slot. @pre it is clear
  void* assign(slot& to, std::size_t bytes, request_time& now) const noexcept {
    to.born = now++;
    to.bytes = bytes;
    if constexpr (tools_are_notified) {
      if (host_accessible_) detail::unpoison(to.address, bytes);
    }
    return reinterpret_cast<void*>(to.address);
  }
  /// The live slot at an address; null if there is none. Amortised over a run O(1), but for requests left
  /// out.
  [[nodiscard]] slot* live_at(std::uintptr_t address) noexcept;

  /// The block of a slot has died, or, at the time of its birth, is a foreign block from now on.
  void set_died(std::uint32_t slot, request_time when) noexcept { slots_[slot].died = when; }

  /// The slots of a request, if its blocks outlive the step; else none. O(log such requests).
  [[nodiscard]] std::span<std::uint32_t const> own_slots_of(std::size_t request) const noexcept {
    return std::ranges::equal_range(own_slots_, request, {}, [&](std::uint32_t i) { return request_of(i); });
  }
  /// True if the slot's block outlives its step.
  [[nodiscard]] bool outlives(std::uint32_t slot) const noexcept {
    return predecessors_[slots_[slot].predecessors] == slot;
  }

 private:
  static constexpr std::uintptr_t no_address = (std::numeric_limits<std::uintptr_t>::max)();

  // Blocks are aligned to 16 at least.
  [[nodiscard]] static std::size_t hash(std::uintptr_t address) noexcept {
    return fibonacci_hash(address >> 4) >> 32;
  }
  [[nodiscard]] bool is_paused() const noexcept { return paused_ != nullptr; }
  [[nodiscard]] slot*& position() noexcept { return is_paused() ? paused_ : next_; }
  // If the compiler knows the request, only a large alignment needs a test.
  [[nodiscard]] static bool fits_in(slot const& one, std::size_t bytes, std::size_t align) noexcept {
    return bytes <= one.max_bytes && (align <= alignof(std::max_align_t) || (one.address & (align - 1)) == 0);
  }
  void end(slot& ended, request_time now) const noexcept {
    if constexpr (tools_are_notified) {
      if (host_accessible_) poison(ended.address, ended.max_bytes);
    }
    ended.died = now;
  }
  [[nodiscard]] bool deallocate_out_of_order(std::uintptr_t address, request_time now) noexcept;
  void reorder_deallocation(slot& ended) noexcept;
  [[nodiscard]] bool search_clear(std::uint32_t slot);
  void add_slots();
  void find_predecessors();
  void order_deallocations();
  // When its block dies, by the plan.
  [[nodiscard]] std::uint64_t upper_of(slot const* one) const noexcept {
    return blocks_[one->index]->life.upper;
  }

  // The members that the fast path reads come first.
  slot* next_ = nullptr;  // the next request's; or the last of all while the fast path is paused
  slot* const* next_deallocation_ = nullptr;
  slot* paused_ = nullptr;  // the next request's while the fast path is paused; else null
  request_time begin_ = 0;
  std::vector<slot> slots_;                  // and one that is always clear and has no address
  std::vector<std::uint32_t> predecessors_;  // lists that end with the last slot of all; an empty one first
  // Slots in the order in which the plan has their blocks deallocated, and the last one of all. Within one
  // time, in that of the last run that differed.
  std::vector<slot*> deallocation_order_;
  std::vector<slot*> table_;  // by hash of the address: the newest there, when it was looked for last
  std::size_t mask_ = 0;
  bool host_accessible_ = true;

  step_plan plan_;
  std::vector<planned_block const*> blocks_;       // by slot, of `plan_`
  std::vector<std::uint32_t> deallocation_index_;  // by slot: its index in `deallocation_order_`
  std::vector<std::uint32_t> visited_;             // of `search_clear`
  std::vector<std::size_t> offsets_;               // by slot
  std::vector<std::uint32_t> own_slots_;           // by request
  std::size_t origin_ = 0;                         // offset in `plan_` from which on the others lie
  std::size_t others_begin_ = 0;                   // where `origin_` lies in fact
  std::size_t alignment_ = 1;
  std::uintptr_t base_ = 0;
};

}  // namespace tidemark::detail
