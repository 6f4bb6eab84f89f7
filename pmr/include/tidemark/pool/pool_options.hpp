// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool_options` and `pool_stats`: how a pool is made, and what it holds and did, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/core/units.hpp>

namespace tidemark {

/// How a pool is made. By default its blocks waste little, whatever is asked for.
struct pool_options {
  /// Blocks taken from the upstream at the start, of each class of up to 1 KiB.
  std::size_t small_block_count = 0;
  /// The same of each class above, up to 16 KiB. Larger classes start empty.
  std::size_t medium_block_count = 0;
  /// Free blocks are held up to this many bytes; beyond, memory is returned to the upstream. A program that
  /// frees more before it asks for it again, as a step of a large network does, should raise it: otherwise
  /// that memory is taken from the system anew each time, page by page.
  std::size_t max_cached_bytes = 64 * MiB;
  /// Whether blocks beyond the largest class are cached too, those of at most `max_cached_bytes`, or in a
  /// `synchronized_pool` half of it: memory for them comes in chunks, and free neighbours are merged.
  /// Otherwise each is one allocation of the upstream and goes straight back to it, as in the standard's
  /// pools.
  bool keep_large_blocks = true;
  /// Sizes of the classes in bytes, rising, multiples of 8 from 8 bytes (16 in a `synchronized_pool`) to
  /// 1 GiB, at most 96. Empty: each multiple of 8 up to 64, then eight to each doubling up to 16 KiB, so that
  /// less than a ninth of a block above 64 bytes is waste, or a fifth where it is to be aligned to 16. A
  /// block of 24 bytes is aligned to 8: what is to be aligned to 16 takes the next class that is; it is fast
  /// up to the largest class that is. `size_histogram` suggests multiples of 16 that fit a program.
  // GCC warns about members that are left out unless they have initializers.
  std::vector<std::size_t> size_classes = {};  // NOLINT(readability-redundant-member-init)
  /// Most blocks taken from the upstream at once, where slabs grow by half from 1 KiB to 512 KiB, as in the
  /// standard's pools; 0: slabs of a 32nd of their class, from 4 KiB to 1 MiB.
  std::size_t max_blocks_per_slab = 0;
  /// Where memory comes from; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the pool.
  char const* name = "pool";

  /// Those of ML Odyssey's tensor pool: nine classes that double from 64 bytes to 16 KiB, of which some
  /// blocks are there from the start, at most 16 MiB cached, and larger blocks straight back to the upstream.
  [[nodiscard]] static pool_options tensor_classes();
};

/// A snapshot of a pool. Bytes of blocks are those of their size class. A block beyond the largest class
/// counts with what it takes, up to 79 bytes more than requested; one that is not cached, as requested.
///
/// Whenever no call is going on:
/// - `hits + misses == allocations`
/// - `used_bytes` is the sum over live blocks; `requested_bytes <= used_bytes`
/// - `cached_bytes` is the sum over free blocks that are ready to be allocated;
///   `cached_bytes <= peak_cached_bytes` and `cached_bytes <= pool_options::max_cached_bytes`
/// - `held_bytes == used_bytes + cached_bytes + stranded_bytes`
struct pool_stats {
  char const* name = "";              ///< the pool's name
  std::uint64_t allocations = 0;      ///< blocks allocated, since the start or `reset_stats`
  std::uint64_t deallocations = 0;    ///< blocks deallocated, since then
  std::uint64_t hits = 0;             ///< of the allocations, those served without a call of the upstream
  std::uint64_t misses = 0;           ///< of the allocations, those that called it
  std::size_t used_blocks = 0;        ///< live blocks
  std::size_t used_bytes = 0;         ///< of live blocks
  std::size_t requested_bytes = 0;    ///< of live blocks, as they were requested
  std::size_t cached_bytes = 0;       ///< of free blocks, ready to be allocated
  std::size_t peak_cached_bytes = 0;  ///< most that were cached at once (see also `synchronized_pool`)
  std::size_t stranded_bytes = 0;  ///< of free blocks set aside, because live ones hold their slab or chunk
  std::size_t held_bytes = 0;      ///< of all three kinds: taken from the upstream and not returned to it
};

namespace detail {

class size_classes;

/// The limits that hold where the standard's options are given, neither of them 0: blocks of 16 KiB where
/// nothing is said and 1 MiB at most, and 2^16 blocks a slab.
[[nodiscard]] std::pmr::pool_options standard_limits(std::pmr::pool_options const& wanted) noexcept;
/// The default classes up to that size, and beyond them doubles. @pre `largest_bytes` is one of them
[[nodiscard]] size_classes standard_classes(std::size_t largest_bytes);
/// The same limits as options, without the sizes of classes, so that no memory is needed.
[[nodiscard]] pool_options standard_slabs(std::pmr::pool_options const& limits,
                                          std::pmr::memory_resource* upstream) noexcept;
/// The standard's options as those of a pool.
[[nodiscard]] pool_options from_standard(std::pmr::pool_options const& standard);

/// `options` with the sizes of classes and the upstream that hold. @param upstream null: the default resource
[[nodiscard]] pool_options completed(pool_options const& options, std::pmr::memory_resource* upstream,
                                     size_classes const& classes);

}  // namespace detail

}  // namespace tidemark
