// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an arena tells of itself, and what level 2 checks. See arena.hpp for the class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/detail/invariant_check.hpp>

namespace tidemark {

template <class AddressSpace>
arena_stats basic_arena<AddressSpace>::stats() const noexcept {
  arena_stats stats;
  stats.name = name();
  stats.used_bytes = position();
  stats.peak_bytes = peak();
  stats.committed_bytes = committed_bytes_;
  if constexpr (AddressSpace::traits.suspends) {
    if (space_.is_suspended()) std::swap(stats.committed_bytes, stats.suspended_bytes);
  }
  stats.reserved_bytes = reserved_bytes_;
  if constexpr (sets_aside) {
    stats.used_bytes += asides_.bytes;
    stats.peak_bytes += asides_.peak_bytes;
    stats.committed_bytes = stats.reserved_bytes = space_.held_bytes();
  }
  stats.chunks = chunks_;
  stats.system_calls = system_calls_;
  if constexpr (can_trap)
    if (trap_ != nullptr) trap_->add_to(stats);
  if constexpr (check_level >= 2) stats.allocations = allocations_;
  return stats;
}

template <class AddressSpace>
bool basic_arena<AddressSpace>::owns(void const* address) const noexcept {
  const std::uintptr_t value = detail::address_of(address);
  if (value >= chunk_->begin && value < cursor_) return true;
  if constexpr (sets_aside)
    if (asides_.contain(value)) return true;
  for (chunk_record const* chunk = chunk_->previous; chunk != nullptr; chunk = chunk->previous) {
    const std::size_t used = chunk->next->base - chunk->base;
    if (value - chunk->begin < used) return true;
  }
  return false;
}

template <class AddressSpace>
void basic_arena<AddressSpace>::before_deallocate(void const* block, std::size_t bytes) const noexcept {
  before_use("deallocate");
  if (block == nullptr || owns(block)) return;
  detail::report_violation(
      violation_kind::bad_deallocate, name(),
      "arena '%s': deallocate of %zu bytes at %p, which it does not hold: foreign, or rewound "
      "over already",
      name(), bytes, block);
}

template <class AddressSpace>
void basic_arena<AddressSpace>::check_invariants() const noexcept {
  const detail::invariant_check expect{"arena", name()};
  expect(chunk_->begin <= marked_, "chunk.begin <= marked");
  expect(marked_ <= floor_, "marked <= floor");
  expect(floor_ <= cursor_, "floor <= cursor");
  bool is_due = false;
  if constexpr (can_trap) {
    if (trap_ != nullptr) {
      is_due = trap_->is_due();
      expect(high_ == chunk_->begin, "high == chunk.begin");
      expect.report(trap_->broken_invariant());
    }
  }
  expect(cursor_ <= chunk_->committed, "cursor <= chunk.committed");
  expect(end_ == (is_due ? 0 : chunk_->committed), "end == chunk.committed");
  expect(chunk_->begin <= high_ && high_ <= chunk_->committed, "chunk.begin <= high <= chunk.committed");
  expect(cursor_ % block_granule == 0, "cursor % block_granule == 0");
  expect(floor_ % block_granule == 0, "floor % block_granule == 0");
  expect(options_.growable || position() <= first_.end - first_.begin, "position <= capacity");
  expect(scope_floor() <= position(), "begin of the innermost scope <= position");
  expect(finalizers_ == nullptr || finalizers_->end_position <= position(), "newest destructor <= position");
  std::size_t chunks = 0, committed = 0, reserved = 0;
  bool in_use = true;
  for (chunk_record const* chunk = &first_; chunk != nullptr; chunk = chunk->next) {
    chunks += chunk->range.empty() ? 0 : 1;
    committed += chunk->committed - chunk->begin;
    reserved += chunk->range.size;
    expect(chunk->begin <= chunk->committed && chunk->committed <= chunk->end, "begin <= committed <= end");
    expect(chunk->next == nullptr || chunk->next->previous == chunk, "next.previous == chunk");
    if (chunk == chunk_) in_use = false;
    if (in_use) expect(chunk->next != nullptr && chunk->base <= chunk->next->base, "base <= next.base");
  }
  expect(!in_use, "the current chunk is in the list");
  expect(chunks == chunks_, "chunks == number of chunks");
  expect(committed == committed_bytes_, "committed == sum over chunks");
  expect(reserved == reserved_bytes_, "reserved == sum over chunks");
}

}  // namespace tidemark
