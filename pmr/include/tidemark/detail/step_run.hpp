// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_run`: a plan of a step, and which of its slots are taken. Owns its tables, and no memory that is
/// handed out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/step_plan.hpp>

namespace tidemark::detail {

/// What a plan gives to a step that runs by it: the n-th request gets the n-th slot, if it fits there and
/// nothing lives in its bytes.
///
/// Time is counted in requests, by the owner: a block that is handed out is born at `now`, which then goes on
/// by one, and dies at the `now` that is when it is given back. The slot of a request shares bytes only with
/// slots of requests before and behind it, and requests of a run are served in order. So its bytes are free
/// if those slots are *clear* that held one of them last before it, by the plan; these are `under` it:
///
///     clear(i) := not live(i), and (died(i) >= begin of the run, or clear(j) for each j under i)
///
/// A slot that was handed out in this run was clear itself, and what was clear stays so: hence the first half
/// of the disjunction, which is all that is looked at first. Before that, the order in which the plan has its
/// blocks given back is followed: as long as it holds, one comparison says that all under a slot are clear.
///
/// A slot whose block outlives its step has bytes that no other has. It lies under itself.
///
/// The fast path looks at the next slot and at the next return alone. What it must not serve has no turn in
/// the order of returns, so that no comparison says that it were clear: slots with bytes of their own, and
/// the last slot of all, which is the next one while the fast path is paused. The slow path looks further.
///
/// Invariants: `live(i) == (died(i) < born(i))`; live slots do not overlap, which the owner looks at; `cursor
/// <= requests`; each slot before the next return in the order of returns is clear, and that order is one by
/// `upper`; of the slots at one address none but the newest is live.
///
/// One thread at a time.
class step_run {
 public:
  using request_time = std::uint64_t;

  /// A place of the plan, and its life: when it was handed out and given back last, and with how many bytes.
  struct alignas(64) slot {
    std::uintptr_t address = 0;
    std::size_t bytes_max = 0;  // that fit in it
    request_time born = 0;
    request_time died = 0;
    std::size_t bytes = 0;
    slot* const* returns_before = nullptr;  // where those end that the plan has before it, with all under it
    slot* same_address = nullptr;           // the next that has it, by request, and behind the last the first
    std::uint32_t under = 0;                // where those under it begin in `unders_`
    std::uint32_t index = 0;

    [[nodiscard]] bool live() const noexcept { return died < born; }
  };

  /// @pre the plan is valid.
  explicit step_run(step_plan plan);
  step_run(step_run const&) = delete;
  step_run& operator=(step_run const&) = delete;

  // ---- the fast path -----------------------------------------------------------------------------------

  /// The next slot, if a request fits there, and all under it have had their turn to be given back; else
  /// null. To be taken. @pre the plan aligns to 16 at least
  [[nodiscard]] slot* next_in_turn(std::size_t bytes, std::size_t align) noexcept {
    slot* const next = next_;
    if (!fits_in(*next, bytes, align) || next->returns_before > returned_) [[unlikely]]
      return nullptr;
    return next;
  }
  /// The same where turns say nothing: if its bytes are free as far as is seen without a search.
  [[nodiscard]] slot* next_at_sight(std::size_t bytes, std::size_t align) noexcept {
    slot* const next = next_;
    if (is_paused() || cursor() >= requests()) return nullptr;
    return fits_in(*next, bytes, align) && is_clear_at_sight(*next) ? next : nullptr;
  }
  /// Hands a slot out. @pre it is clear, and `next` is its request
  void* take(slot& next, std::size_t bytes, request_time& now) noexcept {
    next_ = &next + 1;
    return hand_over(next, bytes, now);
  }

  /// Gives back the block at an address, if its turn has come. @return whether it had, with nothing changed
  /// if not
  [[nodiscard]] bool give_in_turn(std::uintptr_t address, request_time now) noexcept {
    slot& turn = **returned_;
    if (turn.address != address || !turn.live()) [[unlikely]]
      return false;
    ++returned_;
    end(turn, now);
    return true;
  }
  /// Gives back the block at an address. @return false, with nothing changed, if no live slot begins there.
  [[nodiscard]] bool give(std::uintptr_t address, request_time now) noexcept {
    return give_in_turn(address, now) || give_out_of_turn(address, now);
  }

  // ---- the others --------------------------------------------------------------------------------------

  /// Lays the slots at a base. @pre none is live, or it is where they lie.
  void lie_at(std::uintptr_t base, bool host_accessible) noexcept;
  /// A run begins. @pre `now` is later than all that was.
  void begin(request_time now) noexcept {
    begin_ = now;
    position() = slots_.data();
    returned_ = returns_.data();
  }
  /// Goes on at a request: those before it are not served any more in this run.
  void go_on_at(std::size_t request) noexcept { position() = slots_.data() + request; }
  /// Whether the fast path serves; if not, only what follows does.
  void serve_fast(bool whether) noexcept {
    if (whether != is_paused()) return;
    if (whether) {
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
  [[nodiscard]] std::span<slot const> slots() const noexcept { return {slots_.data(), slots_.size() - 1}; }
  [[nodiscard]] std::size_t request_of(std::uint32_t slot) const noexcept { return request_of_[slot]; }
  /// Whether all blocks of this run were given back, but those that outlive the step: O(1), and sure if true.
  [[nodiscard]] bool all_returned() const noexcept { return *returned_ == &slots_.back(); }
  /// Slots that are live now. O(slots).
  [[nodiscard]] std::size_t used_blocks() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(slots(), &slot::live));
  }
  /// What was asked for at a request when the plan was made. Blocks in its slots are so aligned.
  struct wish {
    std::size_t bytes = 0, align = 1;
  };
  [[nodiscard]] wish const& planned(std::size_t request) const noexcept { return planned_[request]; }
  /// The largest alignment of all.
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }
  /// Whether a block fits at a request.
  [[nodiscard]] bool fits(std::size_t request, std::size_t bytes, std::size_t align) const noexcept {
    return request < requests() && bytes <= slots_[request].bytes_max && align <= planned_[request].align;
  }
  /// The newest block of a request.
  [[nodiscard]] slot const& newest(std::size_t request) const noexcept;

  /// The first slot of a request that is clear; null if none is. Amortised O(slots under it). @throws
  /// std::bad_alloc
  [[nodiscard]] slot* clear_slot(std::size_t request);
  /// Hands a slot out. @pre it is clear
  void* hand_over(slot& to, std::size_t bytes, request_time& now) const noexcept {
    to.born = now++;
    to.bytes = bytes;
    if constexpr (tools_are_told) {
      if (host_accessible_) detail::hand_out(to.address, bytes);
    }
    return reinterpret_cast<void*>(to.address);
  }
  /// The live slot at an address; null if there is none. Amortised over a run O(1), but for requests left out.
  [[nodiscard]] slot* live_at(std::uintptr_t address) noexcept {
    slot* const last = last_at(address);
    return last != nullptr && last->live() ? last : nullptr;
  }

  /// A live slot is somebody else's business from now on: it is not live here.
  void detach(std::uint32_t slot) noexcept { slots_[slot].died = slots_[slot].born; }
  /// A block that was detached, of this plan or another, is live here, if a free slot of a request whose
  /// blocks outlive the step has just its bytes. @return whether it is
  [[nodiscard]] bool adopt(std::uintptr_t address, std::size_t bytes_max, std::size_t bytes,
                           request_time now) noexcept;
  /// What was detached has died.
  void note_death(std::uint32_t slot, request_time when) noexcept { slots_[slot].died = when; }

  /// A request whose blocks outlive the step.
  struct own_request {
    std::size_t request = 0;
    std::vector<std::uint32_t> slots{};  // NOLINT(readability-redundant-member-init): GCC warns without
    unsigned steps_within = 0;           // in so many steps in a row its block died in its step
  };
  [[nodiscard]] std::span<own_request> own() noexcept { return own_; }
  /// The same of one request; null if its block does not outlive the step.
  [[nodiscard]] own_request const* own_at(std::size_t request) const noexcept;
  /// Whether the slot's block outlives its step.
  [[nodiscard]] bool is_own(std::uint32_t slot) const noexcept { return unders_[slots_[slot].under] == slot; }

 private:
  static constexpr std::uintptr_t no_address = std::numeric_limits<std::uintptr_t>::max();

  // Multiplicative hashing, as in block_table.hpp, of which the upper half is used. Blocks are aligned to 16
  // at least.
  [[nodiscard]] static std::size_t hash(std::uintptr_t address) noexcept {
    return (std::uint64_t{address >> 4} * 0x9E37'79B9'7F4A'7C15U) >> 32;
  }
  [[nodiscard]] slot* newest_like(slot& known) const noexcept;
  // The slot that was handed out last at an address; null if none begins there.
  [[nodiscard]] slot* last_at(std::uintptr_t address) noexcept {
    for (std::size_t i = hash(address);; ++i) {
      slot*& known = homes_[i & mask_];
      if (known->address == no_address) return nullptr;
      if (known->address == address) return known = newest_like(*known);
    }
  }
  [[nodiscard]] bool is_paused() const noexcept { return paused_ != nullptr; }
  [[nodiscard]] slot*& position() noexcept { return is_paused() ? paused_ : next_; }
  // Where the compiler knows what is asked for, there is nothing to look at but for a large alignment.
  [[nodiscard]] static bool fits_in(slot const& one, std::size_t bytes, std::size_t align) noexcept {
    return bytes <= one.bytes_max && (align <= alignof(std::max_align_t) || (one.address & (align - 1)) == 0);
  }
  [[nodiscard]] bool is_clear_at_sight(slot& one) const noexcept {
    std::uint32_t const* i = &unders_[one.under];
    if (*i == one.index) return is_vacated(one);
    while (slots_[*i].died >= begin_ && slots_[*i].address != no_address) ++i;
    return slots_[*i].address == no_address;
  }
  // Whether a slot is free that has bytes of its own. It may be handed out at the very time when its last
  // block was given back: so that it is live then, it is as if that had been as soon as it was born.
  [[nodiscard]] static bool is_vacated(slot& own) noexcept {
    if (own.live()) return false;
    own.died = own.born;
    return true;
  }
  void end(slot& ended, request_time now) const noexcept {
    if constexpr (tools_are_told) {
      if (host_accessible_) withhold(ended.address, ended.bytes_max);
    }
    ended.died = now;
  }
  [[nodiscard]] bool give_out_of_turn(std::uintptr_t address, request_time now) noexcept;
  void take_turn(slot& ended) noexcept;
  [[nodiscard]] bool clear(std::uint32_t slot);
  void add_slot(planned_block const& block);
  void find_unders();
  void order_returns();

  // What the fast path reads comes first.
  // The next request's; or the last of all, which has no turn, where the fast path is to serve none.
  slot* next_ = nullptr;
  slot* const* returned_ = nullptr;  // where those of `returns_` end that have had their turn in this run
  slot* paused_ = nullptr;           // the next request where the fast path is to serve none; else null
  request_time begin_ = 0;
  std::vector<slot> slots_;            // and one that is always clear and has no address
  std::vector<std::uint32_t> unders_;  // lists that end with the last slot of all; an empty one first
  // Slots in the order in which the plan has them given back, and the last one of all. Within one time, in
  // that of the last run that differed.
  std::vector<slot*> returns_;
  std::vector<slot*> homes_;  // by hash of the address: the newest there, when it was looked for last
  std::size_t mask_ = 0;
  bool host_accessible_ = true;

  step_plan plan_;
  std::vector<wish> planned_;                      // by request
  std::vector<own_request> own_;                   // by request
  std::vector<std::uint32_t> request_of_;          // by slot
  std::vector<std::size_t> offsets_;               // by slot
  std::vector<std::uint64_t> upper_;               // by slot, but of those that outlive the step
  std::vector<std::uint32_t> turn_of_;             // by slot: its place in `returns_`
  std::vector<std::uint32_t> to_visit_, visited_;  // of `clear`
  std::size_t alignment_ = 1;
  std::uintptr_t base_ = 0;
};

}  // namespace tidemark::detail
