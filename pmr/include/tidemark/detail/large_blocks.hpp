// SPDX-License-Identifier: Apache-2.0
/// @file
/// `large_blocks`: a pool's blocks beyond its classes, each a single piece of upstream memory, which it owns;
/// free ones may be kept for requests of about their size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/size_classes.hpp>
#include <tidemark/units.hpp>

namespace tidemark::detail {

/// Blocks of any size and alignment with at least 32 bytes in front, which link them: freeing one is O(1),
/// and `release()` finds them all.
///
/// A block is live or kept. Kept blocks lie in bins, four to each doubling of the size, the one freed last in
/// front. A request takes one that is at most a quarter larger than what is asked for, from the first bin
/// that may have such: never is a block of megabytes held by a small request. A block stays as large as it
/// was first asked for.
///
/// Invariants: `used_bytes() == sum over live blocks`; `kept_bytes() == sum over bins`; a bin's bit in
/// `full_` is set exactly if a block lies in it.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. One thread at a time.
class large_blocks {
 public:
  /// Smaller blocks are not kept: what lies in front of them would be much beside them.
  static constexpr std::size_t kept_bytes_min = 4 * KiB;
  /// Nor are those aligned to more: what the alignment leaves unused in front of them is not counted.
  static constexpr std::size_t kept_alignment_max = size_classes::alignment_max;

  explicit large_blocks(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  large_blocks(large_blocks const&) = delete;
  large_blocks& operator=(large_blocks const&) = delete;
  ~large_blocks() { release(); }

  /// A kept block that suits; null if there is none among the first of the three bins at most. O(1).
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept;
  /// A block from the upstream. @throws std::bad_alloc, or what the upstream throws; nothing has changed
  /// then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);

  /// Keeps a live block, if it is one to keep, and gives it back to the upstream otherwise. O(1).
  /// @param requested_bytes what was asked for when it was handed out.
  /// @param bytes_max larger blocks are not kept.
  /// @return bytes kept: 0 or those of the block.
  std::size_t deallocate(void* memory, std::size_t requested_bytes, std::size_t bytes_max) noexcept;
  /// Gives kept blocks back to the upstream, the largest first, until `bytes_wanted` are gone or none is
  /// left. O(blocks given back). @return their bytes.
  std::size_t release_kept(std::size_t bytes_wanted) noexcept;
  /// Gives everything back, also what is handed out.
  void release() noexcept;

  /// Bytes of a block: at least what was asked for.
  [[nodiscard]] static std::size_t bytes_of(void const* block) noexcept { return header_of(block)->bytes; }
  /// Bytes of live blocks.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  /// Of those, what was asked for.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  /// Bytes of all blocks, without what lies in front of them.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return used_bytes_ + kept_bytes_; }

  /// The first invariant that does not hold, as a formula; null if all do. O(blocks).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Where the upstream's memory begins, so that who looks for leaks finds a pointer to it; the block follows
  // at the next address that is aligned as was asked for. Its list is that of all live blocks, or its bin.
  struct alignas(16) header {
    header* previous;
    header* next;
    std::size_t bytes;  // as they were asked of the upstream
    std::size_t align;  // stands just before the block, too, where that is somewhere else
  };
  static_assert(offsetof(header, align) + sizeof(std::size_t) == sizeof(header));

  [[nodiscard]] static std::size_t offset_of_block(std::size_t align) noexcept {
    return align_up(sizeof(header), align);
  }
  [[nodiscard]] static void* memory_of(header* block) noexcept {
    return reinterpret_cast<std::byte*>(block) + offset_of_block(block->align);
  }
  [[nodiscard]] static header const* header_of(void const* memory) noexcept {
    auto const* const first = static_cast<std::byte const*>(memory);
    std::size_t align;
    std::memcpy(&align, first - sizeof align, sizeof align);
    return reinterpret_cast<header const*>(first - offset_of_block(align));
  }
  [[nodiscard]] static header* header_of(void* memory) noexcept {
    return const_cast<header*>(header_of(static_cast<void const*>(memory)));
  }

  static constexpr unsigned bins_per_doubling_log2 = 2;
  static constexpr unsigned size_log2_min = std::countr_zero(kept_bytes_min);
  static constexpr unsigned size_log2_max = 48;  // of an address space; what is larger shares the last bin
  static constexpr std::size_t bin_count = (size_log2_max - size_log2_min) << bins_per_doubling_log2;
  static constexpr std::size_t bits = 64;  // in a word of full_

  /// The bin of blocks of that size. @pre `bytes >= kept_bytes_min`.
  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept {
    const auto size_log2 = static_cast<unsigned>(std::bit_width(bytes)) - 1;
    const std::size_t steps = bytes >> (size_log2 - bins_per_doubling_log2);  // 4 to 7
    const std::size_t bin = (std::size_t{size_log2 - size_log2_min} << bins_per_doubling_log2) + (steps & 3U);
    return std::min(bin, bin_count - 1);
  }

  /// The largest block that a request is served with.
  [[nodiscard]] static constexpr std::size_t most_for(std::size_t bytes) noexcept {
    return bytes + bytes / 4;
  }

  [[nodiscard]] header* find(std::size_t bin, std::size_t bytes, std::size_t align) const noexcept;
  [[nodiscard]] header* largest_kept() const noexcept;
  void keep(header* block) noexcept;
  void leave_bin(header* block) noexcept;
  static void link(header* block, header*& list) noexcept;
  static void unlink(header* block, header*& list) noexcept;
  void give_back(header* block) noexcept;

  std::pmr::memory_resource* upstream_;
  header* live_ = nullptr;
  std::size_t used_bytes_ = 0, requested_bytes_ = 0, kept_bytes_ = 0;
  std::array<std::uint64_t, (bin_count + bits - 1) / bits> full_{};  // a bit for each bin that has blocks
  std::array<header*, bin_count> bins_{};
};

}  // namespace tidemark::detail
