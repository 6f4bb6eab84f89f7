// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapping_cache`: reuses mappings of the operating system for requests of any size. Owns the free mappings.
///
/// A mapping that is too large is cut, and cut parts are merged when they are free again. A small mapping
/// grows by `mremap`, which moves pages without copies. Programs whose arrays change their sizes therefore
/// reuse pages too, and a mapping can grow with its contents.
///
/// A request takes the smallest sufficient mapping of the searched bins. It returns the unneeded part if that
/// is at least an eighth of the request and `min_bytes`. If all mappings are too small, the largest mapping
/// with half of the needed bytes grows, or the system maps new pages. A new mapping of at least 4 MiB returns
/// its pages when it is freed if few pages were touched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::numpy {

/// Header in front of each block of an `array_memory`.
struct block_header {
  std::size_t bytes;  // requested bytes
  std::size_t room;   // bytes behind the header
};

struct mapping;
/// Links of a free mapping.
struct free_links {
  mapping *previous, *next;  // in its bin
  mapping *older, *newer;    // in the order of their deallocation
};
/// Data of a live mapping.
struct live_part {
  std::size_t needed_bytes;  // whole pages
  std::size_t unused;
  block_header block;
};

/// Record at the beginning of a row of pages. The block follows the record.
struct mapping {
  mapping *before, *after;  // neighbours cut from the same pages, by address; null: none
  std::size_t bytes : 63;   // bytes of all pages
  std::size_t is_free : 1;
  std::size_t dirty_bytes;  // the first bytes may have been written; all others read as 0
  union {
    free_links free;
    live_part live;
  };
};
static_assert(sizeof(mapping) == 64, "it is a line of caches, and behind it the block is aligned");

/// Statistics of a `mapping_cache`.
struct mapping_cache_stats {
  std::uint64_t hits, misses, deallocations;
  std::size_t used_bytes, cached_bytes;
};

/// Keeps free mappings and adapts them to requests. Above the limit, mappings are unmapped in the order of
/// their deallocation.
///
/// *Slack* is the part of live mappings beyond the requested bytes. Invariants, with n = `max_cached_bytes`:
/// - `cached_bytes + slack_bytes <= n`, or nothing is cached: at most n bytes are mapped beyond the bytes in
///   use
/// - `cached_bytes == sum over bins`, and each free mapping is in the bin of its size
/// - no two neighbours that were cut from the same pages are free
///
/// Bytes are multiples of the page size and include the header. Complexity: O(bins), plus system calls.
/// Thread-safe, under one lock that is held during system calls. A forked child may use the cache.
class mapping_cache {
 public:
  static constexpr std::size_t huge_page_bytes = 2 * MiB;
  /// Minimum bytes of a cached mapping.
  static constexpr std::size_t min_bytes = 256 * KiB;

  explicit mapping_cache(std::size_t max_cached_bytes) noexcept : max_cached_bytes_{max_cached_bytes} {}
  mapping_cache(mapping_cache const&) = delete;
  mapping_cache& operator=(mapping_cache const&) = delete;
  ~mapping_cache() { trim(); }

  /// Returns a mapping with room for `bytes` behind its header. New mappings from 4 MiB on are aligned to
  /// huge pages.
  /// @throws std::bad_alloc.
  [[nodiscard]] mapping* allocate(std::size_t bytes);
  /// Frees a mapping.
  void deallocate(mapping* gone) noexcept;
  /// Resizes a live mapping and keeps its contents up to `bytes`; the mapping may move.
  /// @return null, with nothing changed, if the system refuses.
  [[nodiscard]] mapping* resize(mapping* live, std::size_t bytes) noexcept;

  /// Unmaps all free mappings.
  void trim() noexcept;
  /// Keeps no mapping from now on.
  void stop_caching() noexcept;

  [[nodiscard]] mapping_cache_stats stats() const noexcept;
  /// Returns the first invariant that does not hold, as a formula; null if all hold. O(free mappings).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  static constexpr std::size_t bin_count = 160;  // four for each doubling from `min_bytes` on
  // Maximum mappings of a bin that a search visits.
  static constexpr std::size_t max_mappings_tried = 8;

  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept;
  [[nodiscard]] mapping* find(std::size_t bytes) const noexcept;
  void insert(mapping* added) noexcept;
  void remove(mapping* from) noexcept;
  void unmap(mapping* gone) noexcept;
  void cut(mapping* from, std::size_t bytes) noexcept;
  static void merge_with_next(mapping* first) noexcept;
  void release(mapping* gone) noexcept;
  void unmap_oldest_to(std::size_t max_bytes) noexcept;
  [[nodiscard]] mapping* remove_largest(std::size_t bytes) noexcept;
  [[nodiscard]] mapping* grow(mapping* from, std::size_t bytes) noexcept;
  void use(mapping* taken, std::size_t bytes) noexcept;
  void unuse(mapping* from) noexcept;

  mutable detail::fork_safe<> mutex_;  // protects all members below
  std::size_t max_cached_bytes_;
  std::array<mapping*, bin_count> bins_{};
  mapping *oldest_ = nullptr, *newest_ = nullptr;
  std::size_t cached_bytes_ = 0, slack_bytes_ = 0, used_bytes_ = 0;
  std::uint64_t hits_ = 0, misses_ = 0, deallocations_ = 0;
};

}  // namespace tidemark::numpy
