// SPDX-License-Identifier: Apache-2.0
/// @file
/// `extent_region`: one region of memory from which threads claim extents. Owns its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/team/detail/free_extents.hpp>

namespace tidemark::detail {

/// The `address_space` of the regions of a shared arena, whose blocks are whole pages of another space. All
/// regions share the other space, which must outlive them.
template <class AddressSpace>
class region_memory {
 public:
  static constexpr std::size_t page_bytes = free_extents::page_bytes;
  static constexpr space_traits traits{.host_accessible = AddressSpace::traits.host_accessible,
                                       .device_accessible = AddressSpace::traits.device_accessible,
                                       .fresh_is_zero = AddressSpace::traits.fresh_is_zero,
                                       .commits = AddressSpace::traits.commits,
                                       .reserves_at_once = false,
                                       .block_alignment = page_bytes,
                                       .max_commit_ahead_bytes = AddressSpace::traits.max_commit_ahead_bytes};
  static constexpr bool is_part_of_team = true;

  explicit region_memory(AddressSpace& space) noexcept : space_{&space} {}

  /// Reserves one page more if the range may begin inside a page.
  [[nodiscard]] byte_range reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
    const std::size_t slack = space_->granularity() < page_bytes ? page_bytes : 0;
    return space_->reserve(add_saturating(least_bytes, slack), wanted_bytes);
  }
  [[nodiscard]] std::size_t commit(byte_range part, std::size_t least_bytes) noexcept {
    return space_->commit(part, least_bytes);
  }
  [[nodiscard]] bool decommit(byte_range part) noexcept { return space_->decommit(part); }
  void release(byte_range range) noexcept { space_->release(range); }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return space_->chunk_bytes(); }
  [[nodiscard]] std::size_t granularity() const noexcept { return space_->granularity(); }

 private:
  AddressSpace* space_;
};

/// A region from which any number of threads claim extents, whole pages for their use alone, and into which
/// they return extents.
///
/// Extents are blocks of an arena. The arena's cursor is lowered over returned extents below it; all other
/// returned extents are free, and claimed first.
///
/// Invariants: those of the arena and of `free_extents`, which has room for all extents.
///
/// Thread-safety: `claim` and `return_extent` on any thread; other functions only while no other thread uses
/// the region. Complexity: O(free extents), unless stated otherwise.
template <class AddressSpace>
class extent_region {
  using memory_type = region_memory<AddressSpace>;
  using arena_type = basic_arena<memory_type>;

 public:
  static constexpr std::size_t page_bytes = memory_type::page_bytes;

  /// Makes a region on `space`, which it uses with `mutex` locked. Both must outlive the region.
  extent_region(AddressSpace& space, fork_safe<>& mutex, arena_options const& options)
      : space_{&space}, mutex_{&mutex}, arena_{memory_type{space}, options} {}

  /// Claims at least `least` and at best `wanted` bytes, rounded up to whole pages.
  /// @param touched set to the address from which the extent's bytes are untouched since their commit
  /// @return an empty range if there is no memory; nothing has changed then. @throws the exceptions of the
  /// space; std::bad_alloc.
  [[nodiscard]] byte_range claim(std::size_t least, std::size_t wanted, std::uintptr_t& touched,
                                 space_refusal& refused) {
    const std::size_t pages = pages_of(least), wanted_pages = (std::max)(pages, pages_of(wanted));
    late_reports late;
    const std::scoped_lock lock{*mutex_};
    // An extent is returned in up to three parts, and an extent that spans adjacent chunks is divided.
    free_.reserve(arena_.chunks_ + 3 * (claimed_ + 1));
    byte_range range = free_.claim(least, (std::max)(least, wanted));
    if (!range.empty()) {
      ++claimed_;
      touched = range.end();
      return range;
    }
    range = reserve_by_halves(pages, wanted_pages, [&](std::size_t tried) {
      refused = {};
      void* const first = arena_.grow(tried * page_bytes, page_bytes, refused);
      return byte_range{address_of(first), first != nullptr ? tried * page_bytes : 0};
    });
    if (range.empty()) return {};
    ++claimed_;
    touched = std::clamp(arena_.fresh_from(range.begin), range.begin, range.end());
    return range;
  }

  /// Returns an extent, or whole pages at its ends, to the region. Any thread may claim them. Do not access
  /// the bytes afterwards.
  /// @param is_whole false if the caller keeps other pages of the extent
  void return_extent(byte_range range, bool is_whole = true) noexcept {
    poison(range.begin, range.size);
    late_reports late;
    const std::scoped_lock lock{*mutex_};
    if (is_whole) --claimed_;
    free_.add(range);
    if (!is_rewinding_) merge();
  }

  /// Announces that many extents are returned next.
  void begin_rewind() noexcept { is_rewinding_ = true; }
  /// Ends the announced returns. O(n log n) for n returned extents.
  void end_rewind() noexcept {
    is_rewinding_ = false;
    merge();
  }
  /// As `basic_arena::trim`.
  std::size_t trim(std::size_t keep_bytes) noexcept {
    const auto loan = arena_.owner_.lend();
    return arena_.trim(keep_bytes);
  }
  /// Reserves the first chunk unless the region has a chunk. @return true if the region has a chunk now
  [[nodiscard]] bool reserve() { return arena_.chunks_ != 0 || arena_.add_chunk(page_bytes, page_bytes); }
  /// Returns all memory. @pre No extent is in use.
  void release() noexcept {
    const auto loan = arena_.owner_.lend();
    free_.clear();
    arena_.release();
  }

  /// Returns the bytes in extents, free extents included.
  [[nodiscard]] std::size_t claimed_bytes() const noexcept { return arena_.position(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return free_.bytes(); }
  /// Returns the statistics of the extents' arena.
  [[nodiscard]] arena_stats stats() const noexcept { return arena_.stats(); }
  /// Returns the bytes of the largest extent that the held memory or addresses can serve. Requires the lock.
  [[nodiscard]] std::size_t largest_bytes(space_refusal refused) const noexcept {
    return (std::max)(align_down(arena_.largest_bytes(page_bytes, refused), page_bytes),
                      free_.largest_bytes());
  }
  /// Returns the reason why the address space refused memory; empty if unknown. Requires the lock.
  [[nodiscard]] char const* refusal_text() const noexcept { return refusal_of(*space_); }
  /// Returns true if the address is in an extent, free or not. Any thread, with the lock held.
  [[nodiscard]] bool holds(void const* address) const noexcept { return arena_.owns(address); }
  /// Returns the formula that does not hold; null if all hold. @pre as `trim`
  [[nodiscard]] char const* broken_invariant() const noexcept {
    arena_.check_invariants();
    std::size_t free = 0;
    std::uintptr_t above = 0;
    for (byte_range const& range : free_.ranges()) {
      if (range.begin < above || !holds(range.data())) return "free extents are sorted, apart, and claimed";
      above = range.end() + 1;
      free += range.size;
    }
    return free == free_.bytes() ? nullptr : "free_bytes == sum over free extents";
  }

 private:
  static std::size_t pages_of(std::size_t bytes) noexcept {
    return bytes / page_bytes + (bytes % page_bytes != 0 ? 1 : 0);
  }

  // Joins the free extents, and lowers the arena's cursor.
  void merge() noexcept {
    free_.merge();
    lower();
  }
  // Lowers the arena's cursor while the memory below it is free.
  void lower() noexcept {
    auto* chunk = arena_.chunk_;
    std::uintptr_t cursor = arena_.cursor_;
    while (cursor != chunk->begin || chunk->previous != nullptr) {
      if (cursor == chunk->begin) {
        cursor = chunk->previous->begin + (chunk->base - chunk->previous->base);
        chunk = chunk->previous;
      }
      const byte_range below = free_.claim_below(cursor, chunk->begin);
      if (below.empty()) break;
      cursor = below.begin;
    }
    if (chunk == arena_.chunk_ && cursor == arena_.cursor_) return;
    const auto loan = arena_.owner_.lend();
    arena_.rewind_to(*chunk, cursor);
  }

  AddressSpace* space_;
  fork_safe<>* mutex_;
  // Used with the lock held, or while no other thread uses the region:
  arena_type arena_;
  free_extents free_;
  std::size_t claimed_ = 0;  // extents in use
  bool is_rewinding_ = false;
};

}  // namespace tidemark::detail
