// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool_options` and `pool_stats`: configuration and counts of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/units.hpp>

namespace tidemark {

/// Options of a pool. The defaults waste little memory for any mix of sizes.
struct pool_options {
  /// Blocks allocated at construction for each class up to 1 KiB.
  std::size_t small_block_count = 0;
  /// Blocks allocated at construction for each class above 1 KiB, up to 16 KiB. Larger classes start empty.
  std::size_t medium_block_count = 0;
  /// Maximum bytes of free blocks. Beyond it, and under memory pressure, free chunks and slabs return to the
  /// upstream. Free chunks of blocks beyond the largest class have at most 64 MiB of the limit, or half of a
  /// limit above 128 MiB. Raise the limit if each step frees and reallocates more than this, as steps of a
  /// large network do. Otherwise the system maps the memory again in each step, page by page.
  std::size_t max_cached_bytes = 128 * MiB;
  /// True: blocks beyond the largest class are cached too, up to the limit of free chunks each. A
  /// `synchronized_pool` uses the limit for half of `max_cached_bytes`. The memory of these blocks comes in
  /// chunks, and free neighbours are merged. False: each such block is one allocation of the upstream and is
  /// returned to it at once, as in the standard's pools.
  bool keep_large_blocks = true;
  /// Sizes of the classes in bytes, in rising order: at most 96 multiples of 8, from 8 (16 in a
  /// `synchronized_pool`) to 1 GiB. Empty: multiples of 8 up to 64, then eight to each doubling up to 16 KiB.
  /// Blocks above 64 bytes then waste less than a ninth, or a fifth if aligned to 16.
  ///
  /// A class of 24 bytes is aligned to 8. A request aligned to 16 takes the next class that is a multiple of
  /// 16. A request above the largest such class takes the slow path. `size_histogram` suggests multiples of
  /// 16 that fit a program.
  // The initializer is for GCC, which warns about omitted members without an initializer.
  std::vector<std::size_t> size_classes = {};  // NOLINT(readability-redundant-member-init)
  /// Maximum blocks of a slab, for slabs that grow by half from 1 KiB to 512 KiB, as in the standard's pools.
  /// 0: a new slab has a 32nd of the bytes in the slabs of its class, from 4 KiB to 1 MiB.
  std::size_t max_blocks_per_slab = 0;
  /// Source of memory; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// Used in messages and statistics; must outlive the pool.
  char const* name = "pool";

  /// Options of ML Odyssey's tensor pool: nine classes that double from 64 bytes to 16 KiB, with some blocks
  /// allocated at construction; at most 16 MiB cached; larger blocks go directly back to the upstream.
  [[nodiscard]] static pool_options tensor_classes();
};

/// A snapshot of a pool. A block counts with the bytes of its size class. A block beyond the largest class
/// counts with up to 79 bytes more than requested.
///
/// While no call is active:
/// - `hits + misses == allocations`
/// - `used_bytes` is the sum over live blocks; `requested_bytes <= used_bytes`
/// - `cached_bytes` is the sum over free blocks ready to be allocated;
///   `cached_bytes <= peak_cached_bytes` and `cached_bytes <= pool_options::max_cached_bytes`
/// - `held_bytes == used_bytes + cached_bytes + stranded_bytes`
struct pool_stats {
  char const* name = "";              ///< the pool's name
  std::uint64_t allocations = 0;      ///< blocks allocated since construction or `reset_stats`
  std::uint64_t deallocations = 0;    ///< blocks deallocated since then
  std::uint64_t hits = 0;             ///< allocations served without a call of the upstream
  std::uint64_t misses = 0;           ///< allocations that called the upstream or added a slab
  std::size_t used_blocks = 0;        ///< live blocks
  std::size_t used_bytes = 0;         ///< bytes of live blocks
  std::size_t requested_bytes = 0;    ///< bytes of live blocks, as requested
  std::size_t cached_bytes = 0;       ///< bytes of free blocks that are ready to be allocated
  std::size_t peak_cached_bytes = 0;  ///< most bytes cached at once (see also `synchronized_pool::stats`)
  /// other free bytes, which a trim cannot return: blocks of trimmed slabs with live blocks, and free ranges of
  /// chunks and regions with live blocks
  std::size_t stranded_bytes = 0;
  std::size_t held_bytes = 0;  ///< bytes of all three kinds: taken from the upstream and not returned
};

namespace detail {

class size_classes;

/// Returns the standard's options with limits in effect, both nonzero. Blocks: 16 KiB if 0, at most 1 MiB.
/// Blocks of a slab: 2^16 if 0, at most 2^16.
[[nodiscard]] std::pmr::pool_options standard_limits(std::pmr::pool_options const& wanted) noexcept;
/// Returns the default classes up to `largest_bytes`, and then doubles. @pre `largest_bytes` is one of these
/// classes
[[nodiscard]] size_classes standard_classes(std::size_t largest_bytes);
/// Returns options with the same limits, without sizes of classes, and so without allocating.
[[nodiscard]] pool_options standard_slabs(std::pmr::pool_options const& limits,
                                          std::pmr::memory_resource* upstream) noexcept;
/// Converts the standard's options to pool options.
[[nodiscard]] pool_options from_standard(std::pmr::pool_options const& standard);

/// Returns the classes that `options` names, with blocks of at least `min_block_bytes`. @throws as `size_classes`
[[nodiscard]] size_classes classes_of(pool_options const& options, std::size_t min_block_bytes);
/// Returns `options` with the sizes of classes and the upstream in effect. @param upstream null: the default
/// resource
[[nodiscard]] pool_options completed(pool_options const& options, std::pmr::memory_resource* upstream,
                                     size_classes const& classes);

}  // namespace detail

}  // namespace tidemark
