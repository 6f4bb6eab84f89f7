// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapping_cache`: mappings of the operating system that are reused for requests of any size. It owns those
/// that are free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::numpy {

/// What is in front of each block of an `array_memory`.
struct block_header {
  std::size_t bytes;  // as requested
  std::size_t room;   // behind the header
};

struct mapping;
/// Of a mapping that is free.
struct free_links {
  mapping *previous, *next;  // in its bin
  mapping *older, *newer;    // in the order in which they became free
};
/// Of one that is live.
struct live_part {
  std::size_t needed_bytes;  // whole pages
  std::size_t unused;
  block_header block;
};

/// A row of pages, at the beginning of it. The block is behind it.
struct mapping {
  mapping *before, *after;  // what was cut from the same pages, by address; null: nothing
  std::size_t bytes : 63;   // of all pages
  std::size_t is_free : 1;
  std::size_t dirty_bytes;  // the first so many may have been written; all others read as 0
  union {
    free_links free;
    live_part live;
  };
};
static_assert(sizeof(mapping) == 64, "it is a line of caches, and behind it the block is aligned");

/// What a `mapping_cache` has and did.
struct mapping_cache_stats {
  std::uint64_t hits, misses, deallocations;
  std::size_t used_bytes, cached_bytes;
};

/// Keeps free mappings, and makes others of them as requests need them: what is too large is cut, what was
/// cut is merged when it is free again, and what is too small is made to grow by `mremap`, which moves pages
/// and copies nothing. So a program whose arrays change their sizes gets pages that it has used before, too,
/// and a mapping can grow with its contents.
///
/// A request takes the least mapping that is large enough, of those in the bins that it looks at, and leaves
/// what it does not need, if that is an eighth of it and `min_bytes`. If all are too small, the largest grows
/// that has half of what is needed, or else the system maps new pages. Where more is free than may be, the
/// mappings that have been free for longest are unmapped. A mapping of 4 MiB or more that was new returns
/// its pages when it becomes free if few of them were touched, and is as good as new.
///
/// *Slack* is what live mappings have beyond what was requested. Invariants, where n is `max_cached_bytes`:
/// - `cached_bytes + slack_bytes <= n`, or nothing is cached: so much is mapped at most beside what is in use
/// - `cached_bytes == sum over bins`, and each free mapping lies in the bin of its size
/// - no two neighbours that were cut from the same pages are free
///
/// Bytes are multiples of the page size, and count with the header. Complexity: O(bins), and calls of the
/// system. Thread-safe, under one lock that is held during these calls; a child that is forked may use it.
class mapping_cache {
 public:
  static constexpr std::size_t huge_page_bytes = 2 * MiB;
  /// Smaller mappings are not cached.
  static constexpr std::size_t min_bytes = 256 * KiB;

  explicit mapping_cache(std::size_t max_cached_bytes) noexcept : max_cached_bytes_{max_cached_bytes} {}
  mapping_cache(mapping_cache const&) = delete;
  mapping_cache& operator=(mapping_cache const&) = delete;
  ~mapping_cache() { trim(); }

  /// A mapping with room for `bytes` behind its header; from 4 MiB on, new ones are aligned to huge pages.
  /// @throws std::bad_alloc.
  [[nodiscard]] mapping* allocate(std::size_t bytes);
  /// Takes a mapping back.
  void deallocate(mapping* gone) noexcept;
  /// A live mapping with room for `bytes`, and the same contents up to that; it may have moved.
  /// @return null, with nothing changed, if the system refuses.
  [[nodiscard]] mapping* resize(mapping* live, std::size_t bytes) noexcept;

  /// Unmaps all that is free.
  void trim() noexcept;
  /// From now on nothing is kept.
  void stop_caching() noexcept;

  [[nodiscard]] mapping_cache_stats stats() const noexcept;
  /// The first invariant that does not hold, as a formula; null if all do. O(free mappings).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  static constexpr std::size_t bin_count = 160;  // four to each doubling from `min_bytes` on
  // As many mappings of a bin are looked at.
  static constexpr std::size_t mappings_looked_at = 8;

  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept;
  [[nodiscard]] mapping* find(std::size_t bytes) const noexcept;
  void insert(mapping* added) noexcept;
  void remove(mapping* from) noexcept;
  void unmap(mapping* gone) noexcept;
  void cut(mapping* from, std::size_t bytes) noexcept;
  static void merge_with_next(mapping* first) noexcept;
  void release(mapping* gone) noexcept;
  void unmap_oldest_to(std::size_t max_bytes) noexcept;
  [[nodiscard]] mapping* take_largest(std::size_t bytes) noexcept;
  [[nodiscard]] mapping* grow(mapping* from, std::size_t bytes) noexcept;
  void use(mapping* taken, std::size_t bytes) noexcept;
  void unuse(mapping* from) noexcept;

  mutable detail::fork_safe<> mutex_;  // guards all below
  std::size_t max_cached_bytes_;
  std::array<mapping*, bin_count> bins_{};
  mapping *oldest_ = nullptr, *newest_ = nullptr;
  std::size_t cached_bytes_ = 0, slack_bytes_ = 0, used_bytes_ = 0;
  std::uint64_t hits_ = 0, misses_ = 0, deallocations_ = 0;
};

}  // namespace tidemark::numpy
