// SPDX-License-Identifier: Apache-2.0
/// @file
/// `array_memory`: the memory of NumPy's arrays. Owns all of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

#include "mapping_cache.hpp"

namespace tidemark::numpy {

/// Options of an `array_memory`.
struct array_memory_options {
  std::size_t max_cached_bytes;  ///< maximum bytes of free blocks that are kept
  bool huge_pages;               ///< for uninitialised blocks of 4 MiB and more
};

/// A snapshot, with the names of all statistics (docs/design.md). Bytes are bytes of blocks, which exceed
/// their arrays by a header of 16 or 64 bytes and by rounding.
struct array_memory_stats {
  std::uint64_t allocations, deallocations, hits, misses;
  std::size_t used_blocks, used_bytes, cached_bytes, held_bytes;
};

/// Blocks for NumPy's handlers. Each block has a header with its size: a reallocation does not get the old
/// size. A deallocation of some arrays gets a different size than the request.
///
/// A block of less than 256 KiB comes from a `synchronized_pool`. A larger block is a mapping of a
/// `mapping_cache`, and shares its pages with no other block. Free blocks can therefore always be returned.
///
/// Invariants: `bytes <= room` for each live block; `cached_bytes <= max_cached_bytes`. Blocks of at least 64
/// bytes are aligned to 64 bytes, smaller blocks to 16. Thread-safe. A forked child may use the memory.
class array_memory {
 public:
  explicit array_memory(array_memory_options options);
  array_memory(array_memory const&) = delete;
  array_memory& operator=(array_memory const&) = delete;

  /// Allocates an uninitialised block. @throws std::bad_alloc, after a return of all cached memory.
  [[nodiscard]] void* allocate(std::size_t bytes) { return prepare(allocate_unprepared(bytes), false); }
  /// Allocates a block of zeros. @throws as `allocate`.
  [[nodiscard]] void* allocate_zeroed(std::size_t bytes) { return prepare(allocate_unprepared(bytes), true); }
  /// Resizes a block. The block stays in place if its room is between the needed bytes and twice the needed
  /// bytes. Otherwise its mapping grows, or the contents are copied. @param block null: as `allocate`.
  /// @throws as `allocate`; the block has not changed then.
  [[nodiscard]] void* reallocate(void* block, std::size_t bytes);
  /// Frees a block. Does nothing for null.
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

  /// First part of `allocate` and `allocate_zeroed`: takes a block with unprepared contents.
  [[nodiscard]] void* allocate_unprepared(std::size_t bytes) {
    try {
      return bytes < min_mapping_bytes ? allocate_in_pool(bytes) : allocate_mapping(bytes);
    } catch (std::bad_alloc const&) {
      return allocate_after_trim(bytes);
    }
  }
  /// Second part of `allocate` and `allocate_zeroed`: prepares the contents. @return the block.
  void* prepare(void* block, bool zeroed) noexcept {
    block_header const& of = header_of(block);
    if (of.room > min_mapping_bytes) prepare_mapping(block, zeroed);
    else if (zeroed) std::memset(block, 0, of.bytes);
    return block;
  }

  /// Returns the requested bytes of a live block.
  [[nodiscard]] static std::size_t bytes_of(void* block) noexcept { return header_of(block).bytes; }

  /// Returns cached memory to the system.
  void trim() noexcept;
  /// Keeps no memory for other requests from now on, because no request will follow.
  void retire() noexcept;

  [[nodiscard]] array_memory_stats stats() const noexcept;
  /// Returns the first invariant of the mappings that does not hold, as a formula; null if all hold.
  [[nodiscard]] char const* broken_invariant() const noexcept { return mappings_.broken_invariant(); }

 private:
  // Minimum requested bytes of a mapping. A mapping has more room, because it has a header and whole pages.
  static constexpr std::size_t min_mapping_bytes = mapping_cache::min_bytes;

  [[nodiscard]] static block_header& header_of(void* block) noexcept {
    return static_cast<block_header*>(block)[-1];
  }
  // Keeps vectors of 64 bytes within cache lines: expressions of 8 numbers take 4 % less time.
  [[nodiscard]] static constexpr std::size_t offset_of_block(std::size_t room) noexcept {
    return room < 64 ? sizeof(block_header) : 64;
  }

  [[nodiscard]] void* allocate_in_pool(std::size_t bytes) {
    const std::size_t room = detail::align_up(std::max<std::size_t>(bytes, 1), sizeof(block_header));
    const std::size_t offset = offset_of_block(room);
    void* const block = static_cast<std::byte*>(pool_.allocate(offset + room, offset)) + offset;
    header_of(block) = {.bytes = bytes, .room = room};
    return block;
  }
  [[nodiscard]] static mapping* mapping_of(void* block) noexcept { return static_cast<mapping*>(block) - 1; }
  [[nodiscard]] static void* block_of(mapping* of, std::size_t bytes) noexcept;
  [[nodiscard]] void* allocate_mapping(std::size_t bytes);
  [[nodiscard]] TIDEMARK_COLD void* allocate_after_trim(std::size_t bytes);
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
