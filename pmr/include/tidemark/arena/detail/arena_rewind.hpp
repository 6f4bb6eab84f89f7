// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arena rewinds: over chunks, at the end of scopes, with destructors; and trims. See arena_state.hpp for the
/// class.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>

namespace tidemark::detail {

// Position of the beginning of the innermost open scope; 0 if no scope is open.
template <class AddressSpace>
std::size_t arena_state<AddressSpace>::scope_floor() const noexcept {
  if (innermost() == nullptr) return 0;
  chunk_record const& chunk = *innermost()->opened_.chunk;
  return position_in(chunk, max_of(innermost()->opened_.cursor, chunk.begin));
}

// Upper bound of the live marks in the last used chunk; its beginning if it has no marks.
template <class AddressSpace>
inline std::uintptr_t arena_state<AddressSpace>::highest_mark_in(chunk_record const& chunk) const noexcept {
  return chunk.begin + (max_of(history_.newest_mark(), chunk.base) - chunk.base);
}

// Runs the destructors of `make` above a position. All memory stays allocated meanwhile, because a destructor
// may use later blocks and may allocate. The floor rises to the cursor, so that a rewind by a destructor
// takes the slow path. The slow path rejects a target below the present cursor.
template <class AddressSpace>
void arena_state<AddressSpace>::run_destructors(std::size_t target) noexcept {
  if (finalizers_ == nullptr || finalizers_->end_position <= target) return;
  const std::size_t outer = std::exchange(destroying_from_, position());
  floor_ = cursor_;
  while (finalizers_ != nullptr && finalizers_->end_position > target) {
    const arena_finalizer finalizer = *finalizers_;
    finalizers_ = finalizer.previous;
    finalizer.destroy(finalizer.object);
  }
  destroying_from_ = outer;
}

// True if the arena may rewind to a position; false below an object whose destructor is running.
template <class AddressSpace>
bool arena_state<AddressSpace>::may_rewind_to(std::size_t target) const noexcept {
  if (target >= destroying_from_) return true;
  report_violation(violation_kind::rewind_in_destructor, name(),
                   "arena '%s': a destructor run by the arena rewinds, resets or releases the same "
                   "arena; this call is ignored",
                   name());
  return false;
}

// A trapping arena leaves `high_` unchanged: the comparison with it then leads here after each rewind.
template <class AddressSpace>
void arena_state<AddressSpace>::raise_high() noexcept {
  if (!is_trapping()) {
    high_ = cursor_;
  } else {
    dirty_ = chunk_->touched = max_of(dirty_, cursor_);
    peak_ = peak();
  }
}

template <class AddressSpace>
void arena_state<AddressSpace>::rewind_to_floor() noexcept {
  lower_cursor(floor_);
  count_rewind();
}

template <class AddressSpace>
void arena_state<AddressSpace>::deallocate_highest(std::uintptr_t cursor) noexcept {
  lower_cursor(cursor);
  if (cursor_ == chunk_->begin) return_to_previous_chunk();
}

template <class AddressSpace>
void arena_state<AddressSpace>::count_rewind() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    trap_->count_rewind();
    set_cursor(*chunk_, cursor_);
  }
}

// Rewinds to `cursor` in a used chunk. `cursor` is 0 if it was saved before the chunk had memory.
template <class AddressSpace>
void arena_state<AddressSpace>::rewind_to(chunk_record& chunk, std::uintptr_t cursor) noexcept {
  cursor = max_of(cursor, chunk.begin);
  const std::size_t target = position_in(chunk, cursor);
  if (!may_rewind_to(target)) return;
  run_destructors(target);
  if constexpr (is_thread_part) {
    while (asides_.ended != nullptr)
      asides_.release_range(*this, *std::exchange(asides_.ended, asides_.ended->previous));
  }
  history_.rewound_to(target);
  if (&chunk == chunk_) {
    lower_cursor(cursor);
    floor_ = min_of(max_of(floor_, chunk.begin), cursor);
  } else {
    return_to(chunk, cursor);
    if (committed_bytes_ > options_.retain) drop_beyond_retain();
  }
  marked_ = highest_mark_in(chunk);
  if (is_trapping()) [[unlikely]]
    count_rewind();
  if constexpr (check_level >= 2) check_invariants();
}

// Frees all blocks. @return false, with nothing changed, inside a destructor that the arena runs
// @throws std::logic_error if a scope is open
template <class AddressSpace>
bool arena_state<AddressSpace>::free_all(char const* operation) {
  before_use(operation);
  if (destroying_from_ != 0) return may_rewind_to(0);
  if (innermost() != nullptr) {
    throw std::logic_error("arena '" + std::string(name()) + "': " + operation + " while a scope is open" +
                           innermost()->where_.opened());
  }
  rewind_to(first_, first_.begin);
  return true;
}

// Drops kept chunks from the end of the list, because the next batch reuses the first ones first.
template <class AddressSpace>
void arena_state<AddressSpace>::drop_beyond_retain() noexcept {
  chunk_record* last = chunk_;
  while (last->next != nullptr) last = last->next;
  while (last != chunk_ && committed_bytes_ > options_.retain) {
    chunk_record* const before = last->previous;
    drop(*last);
    last = before;
  }
}

// Makes an earlier chunk current, at `cursor`. The chunks behind it are kept.
template <class AddressSpace>
void arena_state<AddressSpace>::return_to(chunk_record& chunk, std::uintptr_t cursor) noexcept {
  peak_ = peak();
  chunk_->touched = max_of(chunk_->touched, max_of(high_, cursor_));
  for (chunk_record* left = chunk_; left != &chunk; left = left->previous) {
    before_free(left->begin, left->committed);
    left->marks.on_free(left->begin, min_of(left->touched, left->committed));
  }
  before_free(cursor, chunk.committed);
  chunk.marks.on_free(cursor, min_of(chunk.touched, chunk.committed));
  [[maybe_unused]] chunk_record& newest = *chunk_;
  enter_at(chunk, cursor, false);
  if (!is_closed()) [[likely]]
    return;
  set_cursor(chunk, cursor);
  if constexpr (can_trap)
    if (trap_ != nullptr) trap_->retire_slices(*this, newest);
}

// Continues where the previous chunk was left, because the last block of the current chunk was freed. A mark
// taken here has the same position there. Stays in the chunk if a scope was opened here, because the scope
// must find its chunk again. Also stays in the first slice of a scope, because the scope's next allocations
// must be trapped too.
template <class AddressSpace>
void arena_state<AddressSpace>::return_to_previous_chunk() noexcept {
  chunk_record* const before = chunk_->previous;
  if (before == nullptr || chunk_->begins_scope ||
      (innermost() != nullptr && innermost()->opened_.chunk == chunk_))
    return;
  return_to(*before, before->begin + (chunk_->base - before->base));
  marked_ = highest_mark_in(*before);
  floor_ = max_of(before->floor, marked_);  // as when the chunk was left
}

// Frees the newest block of an observed arena under the conditions of `deallocate`. The floor of such an
// arena is its cursor, so marks, scopes and destructors are compared here.
template <class AddressSpace>
void arena_state<AddressSpace>::deallocate_observed(std::uintptr_t block) noexcept {
  if (finalizers_ == nullptr || finalizers_->destroy != observed_block::release) return;
  arena_finalizer const newest = *finalizers_;
  const bool is_in_scope =
      innermost() == nullptr || innermost()->opened_.chunk != chunk_ || innermost()->opened_.cursor <= block;
  if (address_of(static_cast<observed_block*>(newest.object)->block) != block || block < marked_ ||
      !is_in_scope || position_in(*chunk_, block) < destroying_from_)
    return;
  finalizers_ = newest.previous;
  newest.destroy(newest.object);
  lower_cursor(block);
  floor_ = cursor_;
  if (cursor_ == chunk_->begin) return_to_previous_chunk();
}

template <class AddressSpace>
void arena_state<AddressSpace>::rewind_slow(arena_mark const& mark) {
  if (!may_rewind_to(mark.position_)) return;
  if (char const* const why = why_not_rewind(mark))
    throw std::invalid_argument("arena '" + std::string(name()) + "': cannot rewind: the mark " + why);
  rewind_far(mark);
}

// Reason why the arena cannot rewind to a mark; null if it can.
template <class AddressSpace>
char const* arena_state<AddressSpace>::why_not_rewind(arena_mark const& mark) const noexcept {
  if (mark.arena_ != id_) return "is of another arena, or older than its last release()";
  if (mark.position_ > position()) return "lies ahead of the present position";
  if (!history_.is_live(mark.position_, mark.serial_)) return "was rewound over after it was taken";
  if (mark.position_ < scope_floor()) return "lies before the beginning of a scope that is still open";
  return nullptr;
}

// Rewinds to a live mark in any chunk.
template <class AddressSpace>
void arena_state<AddressSpace>::rewind_far(arena_mark const& mark) noexcept {
  // The end of a chunk and the start of the next have one position; the address distinguishes them.
  chunk_record* chunk = chunk_;
  chunk_record* const deepest = &deepest_chunk();
  if (chunk != deepest && mark.position_ < deepest->next->base) chunk = deepest;  // the most common case
  while (chunk->base > mark.position_) chunk = chunk->previous;
  // A mark taken before the arena had memory has no address: it belongs to the earliest chunk.
  const auto is_at = [&](chunk_record const& at) {
    return at.begin + (mark.position_ - at.base) == mark.cursor_;
  };
  bool is_known = is_at(*chunk);
  chunk_record* tie = chunk;
  while (tie->base == mark.position_ && tie != deepest) {
    tie = tie->previous;
    if (!is_at(*tie)) continue;
    chunk = tie;
    is_known = true;
  }
  if (!is_known) chunk = tie;
  rewind_to(*chunk, chunk->begin + (mark.position_ - chunk->base));
}

template <class AddressSpace>
void arena_state<AddressSpace>::pop(std::size_t bytes) noexcept {
  before_use("pop");
  const std::size_t poppable = position() - scope_floor();
  const std::size_t rounded = bytes >= poppable ? poppable : align_up(bytes, block_granule);
  const std::size_t target = position() - min_of(rounded, poppable);
  chunk_record* chunk = chunk_;
  chunk_record* const deepest = &deepest_chunk();
  while (chunk != deepest && chunk->base >= target && !(chunk->begins_scope && chunk->base == target))
    chunk = chunk->previous;
  rewind_to(*chunk, chunk->begin + (target - chunk->base));
}

// Returns the memory of an arena without allocations.
template <class AddressSpace>
void arena_state<AddressSpace>::return_all() noexcept {
  while (first_.next != nullptr) drop(*first_.next);
  peak_ = peak();
  drop(first_);
  while (free_records_ != nullptr) delete std::exchange(free_records_, free_records_->next);
  id_ = next_identity();  // old marks hold addresses that other chunks may get
}

template <class AddressSpace>
std::size_t arena_state<AddressSpace>::trim(std::size_t keep_bytes) noexcept {
  before_use("trim");
  peak_ = peak();
  const std::size_t committed_before = committed_bytes_;
  std::size_t kept_bytes = chunk_->committed - cursor_;
  for (chunk_record* kept = chunk_->next; kept != nullptr;) {
    chunk_record* const next = kept->next;
    const std::size_t bytes = kept->committed - kept->begin;
    if (add_saturating(kept_bytes, bytes) > keep_bytes) {
      drop(*kept);
    } else {
      kept_bytes += bytes;
    }
    kept = next;
  }
  if constexpr (AddressSpace::traits.commits) {
    const std::uintptr_t first =
        align_up(min_of(add_saturating(cursor_, keep_bytes), chunk_->committed), space_.granularity());
    if (first < chunk_->committed && decommit(*chunk_, first)) {
      high_ = min_of(high_, first);
      if constexpr (AddressSpace::traits.fresh_is_zero) dirty_ = min_of(dirty_, first);
      set_cursor(*chunk_, cursor_);
    }
  }
  return committed_before - committed_bytes_;
}

template <class AddressSpace>
void arena_state<AddressSpace>::close_slow(scope& closing) noexcept {
  if (innermost() == &closing) {
    if (can_trap && !is_trapping() && floor_ == closing.opened_.cursor && chunk_ == closing.opened_.chunk)
      lower_cursor(floor_);  // from a new highest cursor
    else rewind_to(*closing.opened_.chunk, closing.opened_.cursor);
    floor_ = max_of(closing.opened_.floor, marked_);
    set_innermost(closing.opened_.outer);
    return;
  }
  report_violation(violation_kind::scope_order, name(),
                   "arena '%s': a scope ends while a scope inside it is still open%s", name(),
                   opened_text(closing.where_, innermost()->where_).c_str());
  scope* inner = innermost();
  while (inner->opened_.outer != &closing) inner = inner->opened_.outer;
  inner->opened_ = closing.opened_;  // the inner scope now rewinds for both
}

}  // namespace tidemark::detail
