// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an arena takes memory and gives it back: chunks, commits, exhaustion. See arena.hpp for the class.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/arena.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/detail/identity.hpp>
#include <tidemark/detail/sanitizers.hpp>

namespace tidemark {

namespace detail {

// Of the chunks kept for reuse so many are looked at before a new one is made: growing stays O(1).
inline constexpr int kept_chunks_tried_max = 16;

// No request above this can be served, and sums of two requests do not wrap.
inline constexpr std::size_t request_max = std::numeric_limits<std::size_t>::max() / 4;

/// Where a block of `bytes` lies in `chunk` if it is placed at `from` or above; 0 if it does not fit.
[[nodiscard]] inline std::uintptr_t place(arena_chunk const& chunk, std::uintptr_t from, std::size_t bytes,
                                          std::size_t align) noexcept {
  const std::uintptr_t block = align_up(from, align);
  return block >= from && block <= chunk.end && chunk.end - block >= bytes ? block : 0;
}

/// `size` rounded up to a multiple of `step`, which need not be a power of two; saturates.
[[nodiscard]] constexpr std::size_t round_up(std::size_t size, std::size_t step) noexcept {
  return add_saturating(size, step - 1) / step * step;
}

}  // namespace detail

template <class AddressSpace>
basic_arena<AddressSpace>::basic_arena(AddressSpace space, arena_options options)
    : id_{detail::next_identity()}, options_{options}, space_{std::move(space)} {
  const std::size_t granularity = space_.granularity();
  next_chunk_bytes_ = options_.reserve != 0 ? options_.reserve : space_.chunk_bytes();
  if (options_.name == nullptr) options_.name = arena_options{}.name;
  if (options_.commit_step == 0) options_.commit_step = arena_options{}.commit_step;
  options_.commit_step = detail::round_up(options_.commit_step, granularity);
  if constexpr (AddressSpace::reserves_at_once) {
    detail::arena_chunk* chunk = add_chunk(default_alignment);
    if (chunk == nullptr) throw_out_of_memory(next_chunk_bytes_, default_alignment, refusal::addresses);
    enter(*chunk);
  }
}

template <class AddressSpace>
basic_arena<AddressSpace>::~basic_arena() {
  if (innermost_ != nullptr) {
    detail::report_violation(violation_kind::scope_outlived, name(),
                             "arena '%s' is destroyed while a scope on it is open", name());
    for (scope_type* scope = std::exchange(innermost_, nullptr); scope != nullptr; scope = scope->outer_) {
      scope->arena_ = nullptr;
    }
  }
  hand_over();  // who destroys an arena need not be who used it
  release();
}

// Goes on in the next chunk where that is there from an earlier batch, with memory behind the block, and the
// current one is all used: what `grow` and `enter` do, less what is not needed then. The peak needs no note,
// because the position does not fall. A size that wraps becomes 0, and no room is less than that.
template <class AddressSpace>
void* basic_arena<AddressSpace>::allocate_beyond(std::size_t bytes, std::size_t align) {
  if constexpr (AddressSpace::host_accessible) {
    detail::arena_chunk& left = *chunk_;
    detail::arena_chunk* const next = left.next;
    const std::uintptr_t cursor = cursor_;
    const std::size_t size = block_bytes(bytes);
    if (next != nullptr && align <= default_alignment && high_ <= cursor && left.end - cursor < size &&
        size <= next->committed - next->begin) [[likely]] {
      if (left.touched < cursor) left.touched = cursor;
      left.floor = floor_;
      next->base = left.base + (cursor - left.begin);
      const std::uintptr_t block = next->begin;
      chunk_ = next;
      cursor_ = block + size;
      end_ = next->committed;
      floor_ = marked_ = high_ = block;
      dirty_ = next->touched;
      if constexpr (check_level >= 2) ++allocations_;
      detail::hand_out(block, bytes);
      return reinterpret_cast<void*>(block);
    }
  }
  return allocate_slow(bytes, align);
}

template <class AddressSpace>
void* basic_arena<AddressSpace>::allocate_slow(std::size_t bytes, std::size_t align) {
  refusal refused{};
  if (void* block = grow(bytes, align, refused)) {
    if constexpr (check_level >= 2) ++allocations_;
    return block;
  }
  throw_out_of_memory(bytes, align, refused);
}

template <class AddressSpace>
void* basic_arena<AddressSpace>::try_allocate(std::size_t bytes, std::size_t align) noexcept {
  try {
    if constexpr (check_level >= 2) before_allocate(bytes, align);
    refusal refused{};
    void* const block = grow(bytes, align, refused);
    if constexpr (check_level >= 2) allocations_ += block != nullptr ? 1 : 0;
    return block;
  } catch (...) {  // the upstream's exception, or an alignment that is none
    return nullptr;
  }
}

// A block from the current chunk, a kept one or a new one; null if there is no memory, with nothing changed.
// Where the system gives no memory for a chunk, one behind it may have some still.
template <class AddressSpace>
void* basic_arena<AddressSpace>::grow(std::size_t bytes, std::size_t align, refusal& refused) {
  if (!std::has_single_bit(align)) {
    throw std::invalid_argument("arena '" + std::string(name()) + "': alignment " + std::to_string(align) +
                                " is not a power of two");
  }
  if (bytes > detail::request_max || align > detail::request_max) return nullptr;
  const std::size_t size = block_bytes(bytes);

  if (const std::uintptr_t block = detail::place(*chunk_, cursor_, size, align)) {
    if (commit_up_to(*chunk_, block + size)) return bump(block, bytes);
    refused = refusal::memory;
  }
  int untried = detail::kept_chunks_tried_max;
  for (detail::arena_chunk* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    const std::uintptr_t block = detail::place(*kept, kept->begin, size, align);
    if (block == 0) continue;
    if (commit_up_to(*kept, block + size)) {
      enter(*kept);
      return bump(block, bytes);
    }
    refused = refusal::memory;
  }
  if (refused == refusal::memory) return nullptr;
  if (!options_.growable && chunks_ != 0) return nullptr;
  detail::arena_chunk* added = add_chunk(size + (align > default_alignment ? align - default_alignment : 0));
  if (added == nullptr) {
    refused = refusal::addresses;
    return nullptr;
  }
  const std::uintptr_t block = detail::place(*added, added->begin, size, align);
  if (block == 0 || !commit_up_to(*added, block + size)) {
    drop(*added);
    refused = refusal::memory;
    return nullptr;
  }
  enter(*added);
  return bump(block, bytes);
}

// Hands out a block that lies in the committed part of the current chunk.
template <class AddressSpace>
void* basic_arena<AddressSpace>::bump(std::uintptr_t block, std::size_t bytes) noexcept {
  cursor_ = block + block_bytes(bytes);
  end_ = chunk_->committed;
  if constexpr (AddressSpace::host_accessible) detail::hand_out(block, bytes);
  else chunk_->marks.hand_out(block, bytes);
  return reinterpret_cast<void*>(block);
}

// A new chunk right behind the current one; null if there is no memory. The size of those to come grows by
// one step, however large this one had to be.
template <class AddressSpace>
detail::arena_chunk* basic_arena<AddressSpace>::add_chunk(std::size_t least_bytes) {
  const bool is_first = chunk_ == &first_ && first_.range.empty();
  std::unique_ptr<detail::arena_chunk> record;
  if (!is_first) {
    record.reset(new (std::nothrow) detail::arena_chunk{});
    if (record == nullptr) return nullptr;
  }
  if constexpr (!AddressSpace::host_accessible && !AddressSpace::commits) {
    if (!(is_first ? first_ : *record).marks.reserve_heap()) return nullptr;
  }
  ++system_calls_;
  const byte_range range = space_.reserve(least_bytes, std::max(least_bytes, next_chunk_bytes_));
  if (range.empty()) return nullptr;

  detail::arena_chunk& chunk = is_first ? first_ : *record.release();
  chunk.range = range;
  next_chunk_bytes_ = detail::multiply_saturating(next_chunk_bytes_, AddressSpace::chunk_growth);
  // A block at address 0 would look like none, and some device might have one.
  chunk.begin = detail::align_up(std::max<std::uintptr_t>(range.begin, 1), default_alignment);
  // The top 4 GiB of addresses are left out, so that the fast path's sums cannot wrap.
  constexpr std::uintptr_t last = std::numeric_limits<std::uintptr_t>::max() - 4 * fast_request_max;
  chunk.end = std::max(chunk.begin, detail::align_down(std::min(range.end(), last), default_alignment));
  chunk.committed = AddressSpace::commits ? chunk.begin : chunk.end;
  chunk.touched = AddressSpace::fresh_is_zero ? chunk.begin : chunk.end;
  if (is_first) {
    cursor_ = end_ = floor_ = marked_ = high_ = chunk.begin;
  } else {
    chunk.previous = chunk_;
    chunk.next = chunk_->next;
    if (chunk.next != nullptr) chunk.next->previous = &chunk;
    chunk_->next = &chunk;
  }
  ++chunks_;
  reserved_bytes_ += range.size;
  committed_bytes_ += chunk.committed - chunk.begin;
  if constexpr (AddressSpace::host_accessible) detail::withhold(chunk.begin, chunk.committed - chunk.begin);
  else if constexpr (!AddressSpace::commits) chunk.marks.memory_came(range.begin, range.end(), name());
  return &chunk;
}

// Commits in steps until `last` has memory behind it; false if there is none, also none to remember it by.
// Where a whole step is refused, what is needed may still be had.
template <class AddressSpace>
bool basic_arena<AddressSpace>::commit_up_to(detail::arena_chunk& chunk, std::uintptr_t last) noexcept {
  if constexpr (!AddressSpace::host_accessible) {
    if (!(last <= chunk.committed ? chunk.marks.reserve_block() : chunk.marks.reserve_heap())) return false;
  }
  if (last <= chunk.committed) return true;
  const std::size_t step = options_.commit_step;
  const std::size_t amortised = detail::round_up(committed_bytes_ / 8, step);
  const std::size_t needed = detail::round_up(last - chunk.begin, step);
  const std::size_t wanted = std::max(needed, (chunk.committed - chunk.begin) + std::max(step, amortised));
  const std::size_t capacity = chunk.end - chunk.begin;
  const std::size_t least = std::min(detail::round_up(last - chunk.begin, space_.granularity()), capacity);
  std::uintptr_t target = chunk.begin + std::min(wanted, capacity);
  ++system_calls_;
  if (!space_.commit({chunk.committed, target - chunk.committed})) {
    if (target == chunk.begin + least) return false;
    target = chunk.begin + least;
    ++system_calls_;
    if (!space_.commit({chunk.committed, target - chunk.committed})) return false;
  }
  if constexpr (AddressSpace::host_accessible) detail::withhold(chunk.committed, target - chunk.committed);
  else chunk.marks.memory_came(chunk.committed, target, name());
  committed_bytes_ += target - chunk.committed;
  chunk.committed = target;
  return true;
}

// Goes on in a chunk behind the current one; kept chunks that it skips stay kept, behind it.
template <class AddressSpace>
void basic_arena<AddressSpace>::enter(detail::arena_chunk& chunk) noexcept {
  const std::size_t base = position();
  peak_ = peak();
  chunk_->touched = std::max({chunk_->touched, high_, cursor_});
  chunk_->floor = floor_;
  if (&chunk != chunk_ && chunk_->next != &chunk) {
    chunk.previous->next = chunk.next;
    if (chunk.next != nullptr) chunk.next->previous = chunk.previous;
    chunk.previous = chunk_;
    chunk.next = chunk_->next;
    chunk.next->previous = &chunk;
    chunk_->next = &chunk;
  }
  chunk.base = base;
  chunk_ = &chunk;
  cursor_ = floor_ = marked_ = high_ = chunk.begin;
  end_ = chunk.committed;
  dirty_ = chunk.touched;
}

// Gives a chunk that is not in use back to where it came from.
template <class AddressSpace>
void basic_arena<AddressSpace>::drop(detail::arena_chunk& chunk) noexcept {
  if (chunk.range.empty()) return;
  if constexpr (AddressSpace::host_accessible) detail::hand_out(chunk.begin, chunk.committed - chunk.begin);
  else chunk.marks.memory_goes(0);
  ++system_calls_;
  space_.release(chunk.range);
  next_chunk_bytes_ /= AddressSpace::chunk_growth;
  --chunks_;
  reserved_bytes_ -= chunk.range.size;
  committed_bytes_ -= chunk.committed - chunk.begin;
  if (&chunk == &first_) {
    chunk.range = {};
    chunk.begin = chunk.end = chunk.committed = chunk.touched = 0;
    cursor_ = end_ = floor_ = marked_ = high_ = dirty_ = 0;
    return;
  }
  if (chunk.previous != nullptr) chunk.previous->next = chunk.next;
  if (chunk.next != nullptr) chunk.next->previous = chunk.previous;
  delete &chunk;
}

// Tells tools that the memory of all chunks is about to go.
template <class AddressSpace>
void basic_arena<AddressSpace>::memory_goes() noexcept {
  for (detail::arena_chunk* chunk = &first_; chunk != nullptr; chunk = chunk->next)
    chunk->marks.memory_goes(0);
}

// Tells tools that it is there again, with the blocks that lie in it.
template <class AddressSpace>
void basic_arena<AddressSpace>::memory_came() noexcept {
  for (detail::arena_chunk* chunk = &first_; chunk != nullptr; chunk = chunk->next) {
    chunk->marks.memory_came(chunk->begin, chunk->committed, name());
  }
}

template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::trim(std::size_t keep_bytes) noexcept {
  if constexpr (check_level >= 2) before_use("trim");
  peak_ = peak();
  const std::size_t committed_before = committed_bytes_;
  std::size_t kept_bytes = chunk_->committed - cursor_;
  for (detail::arena_chunk* kept = chunk_->next; kept != nullptr;) {
    detail::arena_chunk* const next = kept->next;
    const std::size_t bytes = kept->committed - kept->begin;
    if (detail::add_saturating(kept_bytes, bytes) > keep_bytes) {
      drop(*kept);
    } else {
      kept_bytes += bytes;
    }
    kept = next;
  }
  if constexpr (AddressSpace::commits) {
    const std::uintptr_t first = detail::align_up(
        std::min(detail::add_saturating(cursor_, keep_bytes), chunk_->committed), space_.granularity());
    if (first < chunk_->committed) {
      ++system_calls_;
      const std::size_t bytes = chunk_->committed - first;
      // Who takes memory back may touch it.
      if constexpr (AddressSpace::host_accessible) detail::hand_out(first, bytes);
      else chunk_->marks.memory_goes(first);
      if (!space_.decommit({first, bytes})) {
        if constexpr (AddressSpace::host_accessible) detail::withhold(first, bytes);
        else chunk_->marks.memory_came(first, chunk_->committed, name());
      } else {
        committed_bytes_ -= bytes;
        chunk_->committed = end_ = first;
        high_ = std::min(high_, first);
        if constexpr (AddressSpace::fresh_is_zero) {
          chunk_->touched = std::min(chunk_->touched, first);
          dirty_ = std::min(dirty_, first);
        }
      }
    }
  }
  return committed_before - committed_bytes_;
}

template <class AddressSpace>
bool basic_arena<AddressSpace>::expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
  if constexpr (check_level >= 2) before_deallocate(block, old_bytes);
  if (!is_newest(block, old_bytes) || new_bytes > detail::request_max) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t size = block_bytes(new_bytes);
  if (size > chunk_->end - address || !commit_up_to(*chunk_, address + size)) return false;
  if (address + size < cursor_) lower_cursor(address + size);
  cursor_ = address + size;
  end_ = chunk_->committed;
  if constexpr (AddressSpace::host_accessible) {
    if (new_bytes > old_bytes) detail::hand_out(address + old_bytes, new_bytes - old_bytes);
  } else {
    chunk_->marks.resize(address, new_bytes);
  }
  return true;
}

// The largest block that held memory has room for; only committed memory, if the system just refused to
// commit.
template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::largest_fit(std::size_t align, refusal refused) const noexcept {
  const auto room = [=](detail::arena_chunk const& chunk, std::uintptr_t from) -> std::size_t {
    const std::uintptr_t block = detail::place(chunk, from, 0, align);
    const std::uintptr_t end = refused == refusal::memory ? chunk.committed : chunk.end;
    return block != 0 && block < end ? end - block : 0;
  };
  std::size_t largest = room(*chunk_, cursor_);
  int untried = detail::kept_chunks_tried_max;
  for (detail::arena_chunk const* kept = chunk_->next; kept != nullptr && untried-- > 0; kept = kept->next) {
    largest = std::max(largest, room(*kept, kept->begin));
  }
  return largest;
}

template <class AddressSpace>
void basic_arena<AddressSpace>::throw_out_of_memory(std::size_t bytes, std::size_t align,
                                                    refusal refused) const {
  const arena_stats now = stats();
  exhaustion_report report{.resource = name(),
                           .requested_bytes = bytes,
                           .alignment = align,
                           .used_bytes = now.used_bytes,
                           .committed_bytes = now.committed_bytes,
                           .reserved_bytes = now.reserved_bytes,
                           .largest_bytes = largest_fit(align, refused)};
  if constexpr (requires { space_.refusal(); }) {
    if (refused != refusal::none) report.because = space_.refusal();
  }
  const out_of_memory error{report};
  if (options_.exhaustion == exhaustion_policy::abort) {
    detail::report_violation(violation_kind::exhausted, name(), "%s", error.what());
  }
  throw error;
}

}  // namespace tidemark
