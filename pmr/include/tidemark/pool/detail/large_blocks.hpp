// SPDX-License-Identifier: Apache-2.0
/// @file
/// `large_blocks`: a pool's blocks beyond its classes that it does not cache, each a single block of the
/// upstream, which it owns.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory_resource>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

/// Blocks of any size and alignment with at least 32 bytes in front, which link them: freeing one is O(1),
/// and `release()` finds them all.
///
/// Invariant: `used_bytes() == sum over live blocks`.
///
/// The upstream gets back exactly the (pointer, bytes, alignment) that it gave. One thread at a time.
class large_blocks {
 public:
  explicit large_blocks(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  large_blocks(large_blocks const&) = delete;
  large_blocks& operator=(large_blocks const&) = delete;
  ~large_blocks() { release(); }

  /// A block from the upstream. @throws std::bad_alloc, or what the upstream throws; nothing has changed
  /// then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);
  /// Returns a block to the upstream. O(1).
  void deallocate(void* memory) noexcept;
  /// Returns everything to the upstream, also live blocks.
  void release() noexcept;

  /// Of live blocks, as they were requested.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }

  /// The first invariant that does not hold, as a formula; null if all do. O(blocks).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Where the upstream's memory begins, so that leak checkers find a pointer to it; the block follows at the
  // next aligned address.
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
  [[nodiscard]] static header* header_of(void* memory) noexcept {
    auto* const first = static_cast<std::byte*>(memory);
    std::size_t align;
    std::memcpy(&align, first - sizeof align, sizeof align);
    return reinterpret_cast<header*>(first - offset_of_block(align));
  }

  std::pmr::memory_resource* upstream_;
  header* live_ = nullptr;
  std::size_t used_bytes_ = 0;
};

}  // namespace tidemark::detail
