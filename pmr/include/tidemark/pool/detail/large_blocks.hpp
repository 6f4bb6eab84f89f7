// SPDX-License-Identifier: Apache-2.0
/// @file
/// `large_blocks`: a pool's blocks beyond its classes, each a single block of the upstream, which it owns;
/// free ones may be kept for requests of about their size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory_resource>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::detail {

/// Blocks of any size and alignment with at least 32 bytes in front, which link them: freeing one is O(1),
/// and `release()` finds them all.
///
/// A block is live or kept. Kept blocks lie in bins, four to each doubling of the size, the one freed last in
/// front. A request takes one that is at most a quarter larger than it, from the first bin that may have one,
/// so that no small request holds a block of megabytes. A block keeps the size that it was first requested
/// with.
///
/// Invariants: `used_bytes() == sum over live blocks`; `kept_bytes() == sum over bins`.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. One thread at a time.
class large_blocks {
 public:
  /// Smaller blocks are not kept: what lies in front of them would be much beside them.
  static constexpr std::size_t min_kept_bytes = 4 * KiB;
  /// Nor are those aligned to more: what the alignment leaves unused in front of them is not counted.
  static constexpr std::size_t max_kept_alignment = size_classes::max_alignment;

  explicit large_blocks(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  large_blocks(large_blocks const&) = delete;
  large_blocks& operator=(large_blocks const&) = delete;
  ~large_blocks() { release(); }

  /// A kept block that suits; null if there is none among the first blocks of three bins at most. O(1).
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept;
  /// A block from the upstream. @throws std::bad_alloc, or what the upstream throws; nothing has changed
  /// then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);

  /// Keeps a live block, if size and alignment allow it, and returns it to the upstream otherwise. O(1).
  /// @param requested_bytes as it was allocated with.
  /// @param max_bytes larger blocks are not kept.
  /// @return bytes kept: 0 or those of the block.
  std::size_t deallocate(void* memory, std::size_t requested_bytes, std::size_t max_bytes) noexcept;
  /// Returns kept blocks to the upstream, the largest first, until `bytes_wanted` are gone or none is left.
  /// O(blocks returned + bins). @return their bytes.
  std::size_t release_kept(std::size_t bytes_wanted) noexcept;
  /// Returns everything to the upstream, also live blocks.
  void release() noexcept;

  /// Bytes of a block: at least those requested.
  [[nodiscard]] static std::size_t bytes_of(void* block) noexcept { return header_of(block)->bytes; }
  /// Bytes of live blocks.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  /// Of those, what was requested.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  /// Bytes of all blocks, without what lies in front of them.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return used_bytes_ + kept_bytes_; }

  /// The first invariant that does not hold, as a formula; null if all do. O(blocks).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Where the upstream's memory begins, so that leak checkers find a pointer to it; the block follows at the
  // next aligned address. Its list is that of all live blocks, or its bin.
  struct alignas(16) header {
    header* previous;
    header* next;
    std::size_t bytes;  // of the block
    std::size_t align;  // of the upstream's memory; stored just before the block, too
  };
  static_assert(offsetof(header, align) + sizeof(std::size_t) == sizeof(header));

  [[nodiscard]] static std::size_t offset_of_block(std::size_t align) noexcept {
    return align_up(sizeof(header), align);
  }
  [[nodiscard]] static void* memory_of(header* block) noexcept {
    return reinterpret_cast<std::byte*>(block) + offset_of_block(block->align);
  }
  [[nodiscard]] static header* header_of(void* memory) noexcept {
    auto* const first = static_cast<std::byte*>(memory);
    std::size_t align;
    std::memcpy(&align, first - sizeof align, sizeof align);
    return reinterpret_cast<header*>(first - offset_of_block(align));
  }

  static constexpr unsigned bins_per_doubling_log2 = 2;
  static constexpr unsigned min_size_log2 = std::countr_zero(min_kept_bytes);
  static constexpr unsigned max_size_log2 = 48;  // of an address space; what is larger shares the last bin
  static constexpr std::size_t bin_count = (max_size_log2 - min_size_log2) << bins_per_doubling_log2;

  /// The bin of blocks of that size. @pre `bytes >= min_kept_bytes`.
  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept {
    const auto size_log2 = static_cast<unsigned>(std::bit_width(bytes)) - 1;
    const std::size_t steps = bytes >> (size_log2 - bins_per_doubling_log2);  // 4 to 7
    const std::size_t bin = (std::size_t{size_log2 - min_size_log2} << bins_per_doubling_log2) + (steps & 3U);
    return std::min(bin, bin_count - 1);
  }

  /// The largest block that a request is served with.
  [[nodiscard]] static constexpr std::size_t most_for(std::size_t bytes) noexcept {
    return bytes + bytes / 4;
  }

  [[nodiscard]] header* find(std::size_t bin, std::size_t bytes, std::size_t align) const noexcept;
  void leave_bin(header* block) noexcept;
  static void link(header* block, header*& list) noexcept;
  static void unlink(header* block, header*& list) noexcept;
  void return_to_upstream(header* block) noexcept;

  std::pmr::memory_resource* upstream_;
  header* live_ = nullptr;
  std::size_t used_bytes_ = 0, requested_bytes_ = 0, kept_bytes_ = 0;
  std::array<header*, bin_count> bins_{};
};

}  // namespace tidemark::detail
