// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arena growth: chunks, commits, exhaustion. See arena_state.hpp for the class.
#pragma once

#include <limits>
#include <new>
#include <utility>

#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/out_of_memory.hpp>

namespace tidemark::detail {

template <class AddressSpace>
arena_state<AddressSpace>::arena_state(AddressSpace space, arena_options options)
    : id_{next_identity()},
      options_{options},
      space_{std::move(space)},
      observer_{observer_for(options)},
      trap_{trap_for(options_)} {
  const std::size_t granularity = space_.granularity();
  next_chunk_bytes_ = options_.reserve != 0 ? options_.reserve : space_.chunk_bytes();
  if (options_.name == nullptr) options_.name = arena_options{}.name;
  if (options_.commit_step == 0) options_.commit_step = arena_options{}.commit_step;
  options_.commit_step = round_up(options_.commit_step, granularity);
  if (!can_trap && options_.trap.one_in != 0) {
    report_warning(warning_kind::refused_setting, name(),
                   "arena '%s': cannot trap its scopes, because its memory is not virtual_memory", name());
  }
  if (observer_ != nullptr || is_trapping()) max_crossing_align_ = 0;
  if constexpr (AddressSpace::traits.reserves_at_once) {
    chunk_record* chunk = add_chunk(default_alignment, default_alignment);
    if (chunk == nullptr) throw_out_of_memory(next_chunk_bytes_, default_alignment, refusal::addresses);
    enter(*chunk);
  }
}

template <class AddressSpace>
arena_state<AddressSpace>::~arena_state() = default;

template <class AddressSpace>
void arena_state<AddressSpace>::end() noexcept {
  if (innermost() != nullptr) {
    report_violation(violation_kind::scope_outlived, name(),
                     "arena '%s' is destroyed while a scope on it is open%s", name(),
                     innermost()->where_.opened().c_str());
    for (scope* open = innermost(); open != nullptr; open = open->opened_.outer) {
      open->arena_ = nullptr;
    }
    set_innermost(nullptr);
  }
  owner_.release();  // any thread may destroy an arena
  if (free_all("release")) return_all();
}

// Serves the block from the next chunk if the current chunk is full and the next is kept and committed. This
// shortens `grow` and `enter`. The peak needs no update, because the position does not fall. A size that
// wraps becomes 0: the current chunk then does not count as full.
template <class AddressSpace>
void* arena_state<AddressSpace>::allocate_beyond(std::size_t bytes, std::size_t align) {
  chunk_record& left = *chunk_;
  chunk_record* const next = left.next;
  const std::size_t position = this->position();
  const std::size_t size = block_bytes(bytes);
  if (next == nullptr) [[unlikely]]  // apart, because the compiler would merge it with the next comparison
    return allocate_slow(bytes, align);
  if (align <= max_crossing_align_ && high_ <= cursor_ && left.end - cursor_ < size &&
      (!has_gaps || align_up(next->begin, align) == next->begin) &&  // or it is the buffer
      size <= next->committed - next->begin && next->marks.has_room()) [[likely]] {
    if (left.touched < cursor_) left.touched = cursor_;
    left.floor = floor_;
    next->base = position;
    enter_at(*next, next->begin, false);
    return bump(next->begin, bytes);
  }
  return allocate_slow(bytes, align);
}

template <class AddressSpace>
void* arena_state<AddressSpace>::allocate_slow(std::size_t bytes, std::size_t align) {
  refusal refused{};
  if (void* block = grow(bytes, align, refused)) return block;
  throw_out_of_memory(bytes, align, refused);
}

// Allocates a block, and tells the observer. Returns null, with nothing changed, without memory. The record
// of an observed block is a finalizer, so that each rewind over the block runs it.
template <class AddressSpace>
void* arena_state<AddressSpace>::grow(std::size_t bytes, std::size_t align, refusal& refused) {
  require_power_of_two("arena", name(), align);
  if (bytes > max_request || align > max_request) return nullptr;
  if (observer_ == nullptr) return find_block(bytes, align, refused);
  observed_block* record = nullptr;
  chunk_record& chunk = *chunk_;
  const std::uintptr_t cursor = cursor_;
  const auto allocate = [&]() -> void* {
    void* const found = find_block(bytes, align, refused);
    if (found == nullptr) return nullptr;
    record = new (std::nothrow) observed_block{*observer_, found, bytes};
    if (record != nullptr) return found;
    rewind_to(chunk, cursor);
    throw std::bad_alloc{};
  };
  void* const block = allocate_observed(*observer_, bytes, align, allocate, [&](void*) {
    delete record;
    rewind_to(chunk, cursor);
  });
  if (block == nullptr) return nullptr;
  floor_ = cursor_;
  record->finalizer = {finalizers_, observed_block::release, record, position()};
  finalizers_ = &record->finalizer;
  if constexpr (is_thread_part) asides_.observe(*record);
  return block;
}

// Returns a block from the current chunk, a kept chunk or a new chunk; null without memory. A chunk behind a
// failed one may still have memory, so the search continues.
template <class AddressSpace>
void* arena_state<AddressSpace>::find_block(std::size_t bytes, std::size_t align, refusal& refused) {
  const std::size_t size = block_bytes(bytes);

  if (void* const block = allocate_if_due(bytes, align)) return block;
  if (const std::uintptr_t block = place(cursor_, chunk_->end, size, align)) {
    if (commit_up_to(*chunk_, block + size)) return bump(block, bytes);
    refused = refusal::memory;
  }
  if constexpr (can_trap)
    if (refused == refusal::none && chunk_->is_slice())
      if (void* const block = trap_->allocate_in_slice(*this, bytes, align)) return block;
  int untried = may_add_chunk() ? max_kept_chunks_tried : 0;
  for (chunk_record* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    if (is_trapping()) bound(*kept);
    const std::uintptr_t block = place(kept->begin, kept->end, size, align);
    if (block == 0) continue;
    if (commit_up_to(*kept, block + size)) {
      enter(*kept);
      return bump(block, bytes);
    }
    refused = refusal::memory;
  }
  if (refused == refusal::memory) return nullptr;
  if constexpr (is_thread_part)
    if (space_.is_set_aside(size + (align > default_alignment ? align : 0)))
      return asides_.add(*this, bytes, align, refused);
  if (!may_add_chunk() || size > remaining_bytes()) return nullptr;
  chunk_record* added = add_chunk(size, align);
  if (added == nullptr) {
    refused = refusal::addresses;
    return nullptr;
  }
  if (added == chunk_)  // addresses for trapped scopes now exist
    if (void* const trapped = allocate_if_due(bytes, align)) return trapped;
  if (is_trapping()) bound(*added);
  const std::uintptr_t block = place(added->begin, added->end, size, align);
  if (block == 0 || !commit_up_to(*added, block + size)) {
    drop(*added);
    if (block != 0) refused = refusal::memory;
    return nullptr;
  }
  enter(*added);
  return bump(block, bytes);
}

// Returns the first block of a trapped scope; null if no trapped scope is due.
template <class AddressSpace>
void* arena_state<AddressSpace>::allocate_if_due(std::size_t bytes, std::size_t align) noexcept {
  if constexpr (can_trap)
    if (trap_ != nullptr && trap_->is_due() && !first_.range.empty() && begins_scope())
      return trap_->allocate_in_slice(*this, bytes, align);
  return nullptr;
}

// True if the next block is the first after a mark or in a scope.
template <class AddressSpace>
bool arena_state<AddressSpace>::begins_scope() const noexcept {
  if (cursor_ != floor_) return false;
  const bool is_scopes_chunk = innermost() != nullptr && innermost()->opened_.chunk == chunk_;
  if (chunk_->begins_scope && cursor_ == chunk_->begin)
    return is_scopes_chunk;  // emptied while the scope is open
  return cursor_ == marked_ || (is_scopes_chunk && innermost()->opened_.cursor == cursor_);
}

// True if a chunk may follow the current chunk. In an arena that cannot grow, a chunk may follow only a
// slice: a trapped scope continues there after its slices. The arena's total size stays that of the first
// chunk.
template <class AddressSpace>
bool arena_state<AddressSpace>::may_add_chunk() const noexcept {
  return options_.growable || chunks_ == 0 || chunk_ != &first_;
}

// Bytes that the arena may still allocate, in any chunk.
template <class AddressSpace>
std::size_t arena_state<AddressSpace>::remaining_bytes() const noexcept {
  if (options_.growable || chunks_ == 0) return (std::numeric_limits<std::size_t>::max)();
  return (first_.end - first_.begin) - position();
}

// Called before the arena enters a chunk: cuts the chunk's end to the bytes that the arena may still
// allocate.
template <class AddressSpace>
void arena_state<AddressSpace>::bound(chunk_record& chunk) const noexcept {
  if (&chunk != &first_) chunk.end = chunk.begin + min_of(chunk.range.size, remaining_bytes());
}

// Reserves a range with room for a block. A range of exactly the block's size may begin at a misaligned
// address; then a larger range is reserved.
template <class AddressSpace>
byte_range arena_state<AddressSpace>::reserve_range(std::size_t bytes, std::size_t align) {
  const std::size_t padded_bytes = bytes + (align > block_granule ? align - block_granule : 0);
  const std::size_t wanted_bytes =
      max_of(bytes + (align > default_alignment ? align - default_alignment : 0), next_chunk_bytes_);
  for (std::size_t needed_bytes : {bytes, padded_bytes}) {
    ++system_calls_;
    const byte_range range = space_.reserve(needed_bytes, max_of(needed_bytes, wanted_bytes));
    if (range.empty() || needed_bytes == padded_bytes ||
        place(max_of(range.begin, 1), range.end(), bytes, max_of(align, block_granule)) != 0)
      return range;
    space_.release(range);
  }
  return {};
}

// Adds a chunk with room for a block behind the current chunk; null without memory. The size of later chunks
// grows by one step, whatever the size of this chunk.
template <class AddressSpace>
auto arena_state<AddressSpace>::add_chunk(std::size_t bytes, std::size_t align) -> chunk_record* {
  const bool is_first = chunk_ == &first_ && first_.range.empty();
  if (!is_first && !has_free_record()) return nullptr;
  chunk_record& chunk = is_first ? first_ : *free_records_;
  if (!AddressSpace::traits.commits && !chunk.marks.reserve()) return nullptr;
  const byte_range range = reserve_range(bytes, align);
  if (range.empty()) return nullptr;

  if (!is_first) (void)acquire_chunk_record();
  chunk.range = range;
  next_chunk_bytes_ = multiply_saturating(next_chunk_bytes_, AddressSpace::traits.chunk_growth);
  // A block at address 0 would look like null, and a device might have such a block.
  chunk.begin = align_up(max_of(range.begin, 1), block_granule);
  // Excludes the top 4 GiB of addresses: sums on the fast path cannot wrap.
  constexpr std::uintptr_t last = (std::numeric_limits<std::uintptr_t>::max)() - 4 * max_fast_request;
  chunk.end = max_of(chunk.begin, align_down(min_of(range.end(), last), block_granule));
  chunk.committed = AddressSpace::traits.commits ? chunk.begin : chunk.end;
  chunk.touched = AddressSpace::traits.fresh_is_zero ? chunk.begin : chunk.end;
  if constexpr (AddressSpace::traits.fresh_is_zero && is_thread_part) {
    chunk.touched = min_of(max_of(space_.touched(), chunk.begin), chunk.end);
  }
  if (is_first) {
    enter_at(chunk, chunk.begin);
    if constexpr (can_trap)
      if (trap_ != nullptr) trap_->reserve(space_);
  } else {
    chunk.insert_after(*chunk_);
  }
  ++chunks_;
  reserved_bytes_ += range.size;
  committed_bytes_ += chunk.committed - chunk.begin;
  chunk.marks.on_commit(chunk.begin, chunk.committed, name());
  return &chunk;
}

// Commits memory in steps up to `last`. Returns false without memory, also without memory for the marks.
// Commits only the needed bytes if the system refuses a whole step. The space limits how far a commit runs
// ahead, so that an allocation in a large arena stays quick.
template <class AddressSpace>
bool arena_state<AddressSpace>::commit_up_to(chunk_record& chunk, std::uintptr_t last) noexcept {
  if (!chunk.marks.reserve()) return false;
  if (last <= chunk.committed) return true;
  const std::size_t step = options_.commit_step;
  const std::size_t ahead = min_of(committed_bytes_ / 8, AddressSpace::traits.max_commit_ahead_bytes);
  const std::size_t needed = round_up(last - chunk.begin, step);
  const std::size_t wanted =
      max_of(needed, (chunk.committed - chunk.begin) + max_of(step, round_up(ahead, step)));
  // Whole units of the space, although a bounded chunk may end inside a unit.
  const auto units_up_to = [&](std::size_t bytes) {
    const std::uintptr_t end = chunk.begin + min_of(bytes, chunk.end - chunk.begin);
    return align_up(end, space_.granularity()) - chunk.committed;
  };
  ++system_calls_;
  const std::size_t committed =
      space_.commit({chunk.committed, units_up_to(wanted)},
                    units_up_to(round_up(last - chunk.begin, space_.granularity())));
  if (committed == 0) return false;
  const std::uintptr_t most = is_trapping() ? align_up(chunk.end, space_.granularity()) : chunk.end;
  const std::uintptr_t target = min_of(most, chunk.committed + committed);
  chunk.marks.on_commit(chunk.committed, target, name());
  committed_bytes_ += target - chunk.committed;
  chunk.committed = target;
  if (&chunk == chunk_) set_cursor(chunk, cursor_);
  return true;
}

// Returns the memory of a chunk from `first` on and keeps the addresses. Returns false if the system refuses.
template <class AddressSpace>
bool arena_state<AddressSpace>::decommit(chunk_record& chunk, std::uintptr_t first) noexcept {
  const std::size_t bytes = chunk.committed - first;
  ++system_calls_;
  chunk.marks.on_decommit(first, chunk.committed);
  if (!space_.decommit({first, align_up(bytes, space_.granularity())})) {
    chunk.marks.on_commit(first, chunk.committed, name());
    return false;
  }
  committed_bytes_ -= bytes;
  chunk.committed = first;
  if constexpr (AddressSpace::traits.fresh_is_zero) chunk.touched = min_of(chunk.touched, first);
  return true;
}

// Makes a later chunk the current chunk. Kept chunks between the two stay kept, and follow the entered chunk.
template <class AddressSpace>
void arena_state<AddressSpace>::enter(chunk_record& chunk) noexcept {
  const std::size_t base = position();
  peak_ = peak();
  chunk_->touched = max_of(chunk_->touched, max_of(high_, cursor_));
  chunk_->floor = floor_;
  if (&chunk != chunk_ && chunk_->next != &chunk) {
    chunk.unlink();
    chunk.insert_after(*chunk_);
  }
  chunk.base = base;
  enter_at(chunk, chunk.begin);
}

// Reports to tools that all chunks gain or lose their memory, including their blocks.
template <class AddressSpace>
void arena_state<AddressSpace>::mark_all(bool has_memory) noexcept {
  for (chunk_record* chunk = &first_; chunk != nullptr; chunk = chunk->next)
    if (has_memory) chunk->marks.on_commit(chunk->begin, chunk->committed, name());
    else chunk->marks.on_decommit(chunk->begin, chunk->committed);
}

// Allocates an empty chunk record if none is free. Returns false without memory.
template <class AddressSpace>
bool arena_state<AddressSpace>::has_free_record() noexcept {
  if (free_records_ == nullptr) free_records_ = new (std::nothrow) chunk_record{};
  return free_records_ != nullptr;
}

// Returns an empty chunk record; null without memory.
template <class AddressSpace>
auto arena_state<AddressSpace>::acquire_chunk_record() noexcept -> chunk_record* {
  if (!has_free_record()) return nullptr;
  chunk_record* const record = std::exchange(free_records_, free_records_->next);
  record->next = nullptr;
  return record;
}

// Keeps the record of a dropped chunk for reuse.
template <class AddressSpace>
void arena_state<AddressSpace>::recycle_chunk_record(chunk_record& chunk) noexcept {
  chunk.~chunk_record();
  (new (&chunk) chunk_record{})->next = free_records_;
  free_records_ = &chunk;
}

// Returns an unused chunk to its source.
template <class AddressSpace>
void arena_state<AddressSpace>::drop(chunk_record& chunk) noexcept {
  if (chunk.range.empty()) return;
  before_free(chunk.begin, chunk.committed);
  chunk.marks.on_decommit(chunk.begin, chunk.committed);
  ++system_calls_;
  space_.release(chunk.range);
  next_chunk_bytes_ /= AddressSpace::traits.chunk_growth;
  --chunks_;
  reserved_bytes_ -= chunk.range.size;
  committed_bytes_ -= chunk.committed - chunk.begin;
  if (&chunk == &first_) {
    chunk.range = {};
    chunk.begin = chunk.end = chunk.committed = chunk.touched = 0;
    enter_at(chunk, 0);
    if constexpr (can_trap) {
      if (trap_ != nullptr) {
        const byte_range used = trap_->release(space_);
        chunk.marks.on_decommit(used.begin, used.end());
      }
    }
  } else {
    chunk.unlink();
    recycle_chunk_record(chunk);
  }
}

template <class AddressSpace>
bool arena_state<AddressSpace>::expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
  if constexpr (check_level >= 2) before_deallocate(block, old_bytes);
  const std::uintptr_t address = address_of(block);
  if (address < floor_ || address + block_bytes(old_bytes) != cursor_ || new_bytes > max_request)
    return false;
  const std::size_t size = block_bytes(new_bytes);
  if (size > chunk_->end - address || !commit_up_to(*chunk_, address + size)) return false;
  if (address + size < cursor_) lower_cursor(address + size);
  cursor_ = address + size;
  chunk_->marks.on_resize(address, new_bytes, old_bytes);
  return true;
}

// The largest block that fits in held memory. Counts committed memory only if a commit just failed.
template <class AddressSpace>
std::size_t arena_state<AddressSpace>::largest_bytes(std::size_t align, refusal refused) const noexcept {
  const auto room = [=](chunk_record const& chunk, std::uintptr_t from) -> std::size_t {
    const std::uintptr_t end = refused == refusal::memory ? min_of(chunk.committed, chunk.end) : chunk.end;
    const std::uintptr_t block = place(from, end, 0, align);
    return block != 0 ? end - block : 0;
  };
  std::size_t largest = room(*chunk_, cursor_);
  int untried = max_kept_chunks_tried;
  for (chunk_record const* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    largest = max_of(largest, room(*kept, kept->begin));
  }
  return largest;
}

template <class AddressSpace>
void arena_state<AddressSpace>::throw_out_of_memory(std::size_t bytes, std::size_t align,
                                                    refusal refused) const {
  const arena_stats now = stats();
  exhaustion_report report{.resource = name(),
                           .requested_bytes = bytes,
                           .alignment = align,
                           .used_bytes = now.used_bytes,
                           .committed_bytes = now.committed_bytes,
                           .reserved_bytes = now.reserved_bytes,
                           .largest_bytes = largest_bytes(align, refused)};
  if (refused != refusal::none) report.because = refusal_of(space_);
  if constexpr (is_thread_part) space_.complete(report);
  const out_of_memory error{report};
  if (options_.exhaustion == exhaustion_policy::abort) {
    report_violation(violation_kind::exhausted, name(), "%s", error.what());
  }
  throw error;
}

}  // namespace tidemark::detail
