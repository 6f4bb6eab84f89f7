// SPDX-License-Identifier: Apache-2.0
/// @file
/// `array_memory`: the memory of NumPy's arrays. It owns all of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/memory_pressure.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

#include "mapping_cache.hpp"

namespace tidemark::numpy {

/// How an `array_memory` is made.
struct array_memory_options {
  std::size_t max_cached_bytes;  ///< free blocks are kept up to this many bytes
  bool huge_pages;               ///< for uninitialised blocks of 4 MiB and more
};

/// A snapshot. The words are those of all statistics (docs/design.md). Bytes are those of blocks, which are
/// larger than their arrays by a header of 16 or 64 bytes and by what sizes are rounded up.
struct array_memory_stats {
  std::uint64_t allocations, deallocations, hits, misses;
  std::size_t used_blocks, used_bytes, cached_bytes, held_bytes;
};

/// Blocks as NumPy's handlers allocate them. Each has a header with its size: a reallocation is not given the
/// old size, and a deallocation of some arrays is given another one than was requested.
///
/// A block of less than 256 KiB comes from a `synchronized_pool`. A larger one is a mapping of a
/// `mapping_cache`: no other block shares its pages, so that whatever else lives, free ones can be returned.
///
/// Invariants: `bytes <= room` for each live block; `cached_bytes <= max_cached_bytes`. Blocks are aligned to
/// 64 bytes from 64 bytes on, to 16 below. Thread-safe. A child that is forked may use it.
class array_memory {
 public:
  explicit array_memory(array_memory_options options);
  array_memory(array_memory const&) = delete;
  array_memory& operator=(array_memory const&) = delete;

  /// A block that is not initialised. @throws std::bad_alloc, after all that is cached was returned.
  [[nodiscard]] void* allocate(std::size_t bytes) { return prepare(take(bytes), false); }
  /// A block of zeros. @throws as `allocate`.
  [[nodiscard]] void* allocate_zeroed(std::size_t bytes) { return prepare(take(bytes), true); }
  /// The block with another size: where it is, if it has room and not more than twice what is needed; a
  /// mapping that grows; or else a copy. @param block null: as `allocate`. @throws as `allocate`; the block
  /// is as before then.
  [[nodiscard]] void* reallocate(void* block, std::size_t bytes);
  /// Takes a block back. Null: nothing happens.
  void deallocate(void* block) noexcept {
    if (block == nullptr) return;
    const std::size_t room = header_of(block).room;
    if (room <= min_mapping_bytes) [[likely]] {
      const std::size_t offset = offset_of_block(room);
      pool_.deallocate(static_cast<std::byte*>(block) - offset, offset + room, offset);
    } else {
      deallocate_mapping(block);
    }
    if (is_retired_.load(std::memory_order_relaxed)) [[unlikely]]
      return_retired(room);
  }

  /// What `allocate` and `allocate_zeroed` do first: a block whose contents are still to be prepared.
  [[nodiscard]] void* take(std::size_t bytes) {
    try {
      return bytes < min_mapping_bytes ? take_of_pool(bytes) : take_mapping(bytes);
    } catch (std::bad_alloc const&) {
      return take_after_trim(bytes);
    }
  }
  /// What they do then. @return the block.
  void* prepare(void* block, bool zeroed) noexcept {
    block_header const& of = header_of(block);
    if (of.room > min_mapping_bytes) prepare_mapping(block, zeroed);
    else if (zeroed) std::memset(block, 0, of.bytes);
    return block;
  }

  /// Of a live block, as requested.
  [[nodiscard]] static std::size_t bytes_of(void* block) noexcept { return header_of(block).bytes; }

  /// Returns what is cached to the system.
  void trim() noexcept;
  /// From now on nothing is kept for other requests, since there will be none.
  void retire() noexcept;

  [[nodiscard]] array_memory_stats stats() const noexcept;
  /// The first invariant of the mappings that does not hold, as a formula; null if all do.
  [[nodiscard]] char const* broken_invariant() const noexcept { return mappings_.broken_invariant(); }

 private:
  // Of requests. A mapping has room for more, because it has a header and whole pages.
  static constexpr std::size_t min_mapping_bytes = mapping_cache::min_bytes;

  [[nodiscard]] static block_header& header_of(void* block) noexcept {
    return static_cast<block_header*>(block)[-1];
  }
  // So that vectors of 64 bytes do not cross lines of caches: expressions of 8 numbers take 4 % less time.
  [[nodiscard]] static constexpr std::size_t offset_of_block(std::size_t room) noexcept {
    return room < 64 ? sizeof(block_header) : 64;
  }

  [[nodiscard]] void* take_of_pool(std::size_t bytes) {
    const std::size_t room = detail::align_up(std::max<std::size_t>(bytes, 1), sizeof(block_header));
    const std::size_t offset = offset_of_block(room);
    void* const block = static_cast<std::byte*>(pool_.allocate(offset + room, offset)) + offset;
    header_of(block) = {.bytes = bytes, .room = room};
    return block;
  }
  [[nodiscard]] static mapping* mapping_of(void* block) noexcept { return static_cast<mapping*>(block) - 1; }
  [[nodiscard]] static void* block_of(mapping* of, std::size_t bytes) noexcept;
  [[nodiscard]] void* take_mapping(std::size_t bytes);
  [[nodiscard]] TIDEMARK_COLD void* take_after_trim(std::size_t bytes);
  void prepare_mapping(void* block, bool zeroed) noexcept;
  void deallocate_mapping(void* block) noexcept;
  TIDEMARK_COLD void return_retired(std::size_t bytes) noexcept;

  bool huge_pages_;
  std::atomic<bool> is_retired_ = false;
  std::atomic<std::size_t> unreturned_bytes_ = 0;  // deallocated since a retired memory was trimmed
  synchronized_pool pool_;
  mapping_cache mappings_;
  pressure_subscription pressure_;  // last: its callback uses the others
};

}  // namespace tidemark::numpy
