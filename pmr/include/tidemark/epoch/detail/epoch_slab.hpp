// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_slab`: the record of an address range that holds or held small blocks of an epoch. The range itself
/// stores no metadata.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::detail {

class block_group;

/// The record of an aligned range. The record never moves and lives as long as the resource. The range
/// belongs to the upstream or to a group (`range_use`).
///
/// A slab is an array of blocks of one size, and bit `i` of each row describes block `i`.
///
/// Thread-safety: the group's thread allocates and deallocates in held slabs without a lock. All other
/// operations need the lock of the holder, or of the last holder if the range is the upstream's.
///
/// Invariants: `unused == clear bits among the first blocks bits of allocated`; later bits of the last word
/// are set; `freed_outside` and `is_kept` are subsets of `allocated`; a free range has no bits set in these.
struct epoch_slab {
  static constexpr std::size_t range_bytes = 16 * KiB;
  static constexpr std::size_t min_block_bytes = 16, max_block_bytes = 1 * KiB;
  static constexpr std::size_t max_blocks = range_bytes / min_block_bytes;
  static constexpr std::size_t none = max_blocks;

  /// A group's range is free (no blocks), held (blocks of an open epoch) or kept (blocks kept by an
  /// outermost epoch).
  enum class range_use : std::uint8_t { upstreams, free, held, kept };

  explicit epoch_slab(std::uintptr_t where) noexcept : address{where} {}

  /// Returns the start of the range that contains a block.
  [[nodiscard]] static std::uintptr_t range_of(void const* block) noexcept {
    return align_down(address_of(block), range_bytes);
  }

  // ---- while the range is the upstream's, any thread

  /// True if an epoch reclaimed a block that began at this address, and no later block has begun there.
  [[nodiscard]] bool was_reclaimed(void const* block) const noexcept {
    const std::size_t i = block_at(block);
    return i != none && (word(reclaimed, i / 64) >> i % 64 & 1U) != 0;
  }
  /// Clears the mark of a reclaimed block, because the upstream has allocated its address.
  void remove_reclaimed(void const* block) noexcept {
    if (!was_reclaimed(block)) return;
    const std::size_t i = block_at(block);
    reclaimed[i / 64].fetch_and(~(std::uint64_t{1} << i % 64), std::memory_order_relaxed);
  }

  // ---- while the range is held or kept

  /// Prepares a free range for blocks of one size.
  void begin(std::size_t index, std::size_t bytes_of_block) noexcept {
    ended_by.store(nullptr, std::memory_order_relaxed);
    constexpr auto relaxed = std::memory_order_relaxed;
    class_index.store(static_cast<std::uint32_t>(index), relaxed);
    block_bytes.store(static_cast<std::uint32_t>(bytes_of_block), relaxed);
    reciprocal.store(static_cast<std::uint32_t>((std::uint64_t{1} << 32) / bytes_of_block + 1), relaxed);
    unused = static_cast<std::uint32_t>(range_bytes / bytes_of_block);
    blocks.store(unused, relaxed);
    cursor = 0;
    for (std::size_t w = 0; w < word_count(); ++w) {
      set(reclaimed, w, 0);
      set(allocated, w, 0);
    }
    set(allocated, word_count() - 1, bits_behind());
  }
  [[nodiscard]] bool is_full() const noexcept { return unused == 0; }
  [[nodiscard]] std::uint32_t used() const noexcept { return blocks - unused; }
  /// Allocates a block. @pre not full
  [[nodiscard]] void* allocate() noexcept {
    std::uint64_t free = ~word(allocated, cursor);
    while (free == 0) {
      cursor = cursor + 1 < word_count() ? cursor + 1 : 0;
      free = ~word(allocated, cursor);
    }
    const auto bit = static_cast<std::uint32_t>(std::countr_zero(free));
    set(allocated, cursor, ~free | (free & (~free + 1)));
    --unused;
    return reinterpret_cast<void*>(address + std::uintptr_t{cursor * 64 + bit} * block_bytes.load());
  }
  /// Returns the index of the block that contains an address; `none` if the address lies after the last
  /// block.
  [[nodiscard]] std::size_t block_around(std::uintptr_t inside) const noexcept {
    const std::size_t i = (inside - address) * reciprocal >> 32;
    return i < blocks ? i : none;
  }
  /// Returns the index of the block that begins at an address; `none` if there is no such block.
  // The remainder of a division by `block_bytes` is 0 if the fraction of the quotient is below the reciprocal
  // (Lemire, Kaser and Kurz, "Faster remainder by direct computation", 2019).
  [[nodiscard]] std::size_t block_at(void const* block) const noexcept {
    const std::uint32_t one = reciprocal, count = blocks;
    if (count > max_blocks) __builtin_unreachable();  // a caller's comparison with `none` is then omitted
    const std::uint64_t quotient = (address_of(block) - address) * one;
    return static_cast<std::uint32_t>(quotient) < one && quotient >> 32 < count ? quotient >> 32 : none;
  }
  [[nodiscard]] bool is_live(std::size_t i) const noexcept {
    return ((word(allocated, i / 64) & ~word(freed_outside, i / 64)) >> i % 64 & 1U) != 0;
  }
  /// Deallocates a live block. Called on the group's own thread, or, for a kept slab, on any thread with the
  /// lock.
  void deallocate(std::size_t i) noexcept {
    cursor = static_cast<std::uint32_t>(i / 64);
    const std::uint64_t bit = std::uint64_t{1} << i % 64;
    set(allocated, i / 64, word(allocated, i / 64) & ~bit);
    set(is_kept, i / 64, word(is_kept, i / 64) & ~bit);
    ++unused;
  }
  /// Deallocates a block on another thread. The block can be allocated again after `collect`.
  void deallocate_from_outside(std::size_t i) noexcept {
    set(freed_outside, i / 64, word(freed_outside, i / 64) | std::uint64_t{1} << i % 64);
  }
  /// Frees the blocks that other threads have deallocated. @return number of blocks
  std::size_t collect() noexcept {
    std::size_t freed = 0;
    for (std::size_t w = 0; w < word_count(); ++w) {
      const std::uint64_t gone = word(freed_outside, w);
      if (gone == 0) continue;
      freed += static_cast<std::size_t>(std::popcount(gone));
      set(allocated, w, word(allocated, w) & ~gone);
      set(is_kept, w, word(is_kept, w) & ~gone);
      set(freed_outside, w, 0);
    }
    unused += static_cast<std::uint32_t>(freed);
    return freed;
  }
  /// Marks a live block as kept. @return true if the block was not kept before
  bool keep(std::size_t i) noexcept {
    const std::uint64_t before = word(is_kept, i / 64), bit = std::uint64_t{1} << i % 64;
    set(is_kept, i / 64, before | bit);
    return (before & bit) == 0;
  }
  /// Deallocates all blocks except kept blocks, which become ordinary live blocks. @return number of blocks
  /// deallocated
  std::size_t reclaim() noexcept {
    (void)collect();
    std::uint32_t kept = 0;
    for (std::size_t w = 0; w < word_count(); ++w) {
      const std::uint64_t stays = word(is_kept, w);
      if (stays != 0) kept += static_cast<std::uint32_t>(std::popcount(stays));
      set(reclaimed, w, word(reclaimed, w) | (word(allocated, w) & ~stays));
      set(allocated, w, stays);
      set(is_kept, w, 0);
    }
    set(allocated, word_count() - 1, word(allocated, word_count() - 1) | bits_behind());
    cursor = 0;
    const std::uint32_t before = std::exchange(unused, blocks - kept);
    return unused - before;
  }
  using row = std::array<std::atomic<std::uint64_t>, max_blocks / 64>;

  std::uintptr_t const address;
  std::atomic<range_use> use{range_use::upstreams};
  std::atomic<block_group*> holder{nullptr};  // once set never null; groups live as long as the resource
  std::uint32_t depth = 0;                    // of the epoch, if the range is held
  std::uint32_t unused = 0;                   // clear bits of `allocated`
  std::uint32_t cursor = 0;                   // word of a row where the search for a free block begins
  // Late deallocations on other threads may read these at any time.
  std::atomic<std::uint32_t> class_index{0}, block_bytes{0}, blocks{0};
  std::atomic<std::uint32_t> reciprocal{0};    // 2^32 / block_bytes, rounded up: exact below range_bytes
  std::atomic<char const*> ended_by{nullptr};  // the name of the epoch that reclaimed its blocks last
  epoch_slab* next = nullptr;                  // in the list of its epoch's slabs, or of free slabs
  epoch_slab* next_with_room = nullptr;        // in the list of its epoch and class
  epoch_slab* next_in_chunk = nullptr;
  epoch_slab* chunk = nullptr;  // first slab of the chunk; only the first slab uses the members below
  epoch_slab* next_chunk = nullptr;
  byte_range chunk_memory{};
  std::uint32_t kept_slabs_of_chunk = 0;
  // In a range that is not held, `reclaimed` describes the previous blocks. A late deallocation of such a
  // block is recognised until the upstream allocates a block at its address.
  row allocated{}, freed_outside{}, is_kept{}, reclaimed{};

 private:
  [[nodiscard]] std::size_t word_count() const noexcept { return (blocks + 63) / 64; }
  // Bits after the last block, in the last word of a row.
  [[nodiscard]] std::uint64_t bits_behind() const noexcept {
    return blocks % 64 == 0 ? 0 : ~std::uint64_t{0} << blocks % 64;
  }
  [[nodiscard]] static std::uint64_t word(row const& of, std::size_t w) noexcept {
    return of[w].load(std::memory_order_relaxed);
  }
  static void set(row& of, std::size_t w, std::uint64_t bits) noexcept {
    of[w].store(bits, std::memory_order_relaxed);
  }
};

}  // namespace tidemark::detail
