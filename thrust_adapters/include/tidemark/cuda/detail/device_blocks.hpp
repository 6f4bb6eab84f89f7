// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_blocks`: a device's blocks by size class, in slabs of an upstream. Owns the slabs; its records are
/// beside the memory, never in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <tidemark/cuda/detail/device_classes.hpp>

namespace tidemark::cuda::detail {

/// Slabs, each cut into blocks of one class, and for each class an array of the addresses of its free blocks,
/// last in, first out.
///
/// ```
/// array of a class:  begin ........ floor ........ top ........ end
///                    stranded       listed         room for the blocks handed out
/// ```
/// There is room in the array for every block of the class, made when their slab is taken, so that to give a
/// block back needs no memory. *Stranded* blocks were set aside by a trim because their slab cannot go back
/// yet: the oldest of the free ones, so that to strand is to raise the floor.
///
/// Invariants: `begin <= floor <= top <= end == begin + blocks in slabs` for each class; a free block is one
/// of a slab of its class; `cached_bytes() == sum over listed`, `stranded_bytes() == sum over stranded`,
/// `held_bytes() == sum over slabs`.
///
/// Complexity: O(1) where not said otherwise. One thread at a time.
class device_blocks {
 public:
  /// @param largest_bytes @pre at most `device_classes::bytes_max`
  device_blocks(std::size_t largest_bytes, std::pmr::memory_resource* upstream,
                std::pmr::memory_resource* bookkeeping);
  device_blocks(device_blocks const&) = delete;
  device_blocks& operator=(device_blocks const&) = delete;
  ~device_blocks() { release(); }

  /// Whether there are blocks for such a request.
  [[nodiscard]] bool serves(std::size_t bytes, std::size_t align) const noexcept {
    return bytes <= largest_bytes_ && align <= device_classes::granule_bytes;
  }
  /// A listed block, or null if there is none.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    if (!serves(bytes, align)) [[unlikely]]
      return nullptr;
    bucket& from = buckets_[device_classes::index_of(bytes)];
    if (from.top == from.floor) [[unlikely]]
      return nullptr;
    ++from.allocations;
    requested_bytes_ += bytes;
    cached_bytes_ -= from.block_bytes;
    return *--from.top;
  }
  /// What became of a block given back: it is listed; it is, and more is cached than `watermark`; or nothing
  /// was done, because there are no blocks of that size, or all of them are free already.
  enum class given { kept, over_watermark, not_served, all_free };
  [[nodiscard]] given give(void* block, std::size_t bytes, std::size_t align) noexcept {
    if (!serves(bytes, align)) [[unlikely]]
      return given::not_served;
    bucket& to = buckets_[device_classes::index_of(bytes)];
    if (to.top == to.end) [[unlikely]]
      return given::all_free;
    *to.top++ = block;
    requested_bytes_ -= bytes;
    cached_bytes_ += to.block_bytes;
    return cached_bytes_ > watermark_ ? given::over_watermark : given::kept;
  }

  /// Takes a slab of so many blocks from the upstream, which are listed. @throws what the upstream or the
  /// bookkeeping resource throws; nothing has changed then. @pre the slab is of PTRDIFF_MAX bytes at
  /// most. O(blocks + slabs of the class).
  void add_slab(std::size_t index, std::size_t blocks);
  /// Lists stranded blocks of a class again, `bytes_max` or one block at most. @return how many.
  std::size_t take_stranded(std::size_t index, std::size_t bytes_max) noexcept;
  /// Strands listed blocks, the largest first, until `cached_bytes() <= target_bytes`. O(classes).
  void strand(std::size_t target_bytes) noexcept;
  /// Gives slabs whose blocks are all free back to the upstream, the largest blocks first, until no more than
  /// `target_bytes` are listed and stranded. @return bytes. O(free blocks * log(slabs of a class)).
  std::size_t release_free_slabs(std::size_t target_bytes) noexcept;
  /// Gives everything back, also what is handed out, which counts as given back.
  void release() noexcept;

  /// `give` tells when more than this is cached.
  void set_watermark(std::size_t bytes) noexcept { watermark_ = bytes; }

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept { return largest_bytes_; }
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  /// Blocks handed out so far, and of these those that were not given back. O(classes).
  [[nodiscard]] std::uint64_t allocations() const noexcept;
  [[nodiscard]] std::size_t used_blocks() const noexcept;

  /// The first invariant that does not hold, or null. O(free blocks * log(slabs of a class)).
  [[nodiscard]] char const* broken_invariant() noexcept;

 private:
  struct alignas(64) bucket {  // a cache line each
    void** top = nullptr;
    void** floor = nullptr;
    void** end = nullptr;
    std::size_t block_bytes = 0;
    std::uint64_t allocations = 0;
    void** begin = nullptr;
  };
  struct slab {
    std::uintptr_t first;
    std::size_t blocks;
    std::size_t free;  // counted anew by who needs it
  };
  using slabs = std::pmr::vector<slab>;  // of one class, sorted by address
  using places = std::pmr::vector<void*>;

  void point_to(std::size_t index, std::size_t stranded, std::size_t free) noexcept;
  [[nodiscard]] static slab* find(slabs& among, std::size_t block_bytes, void const* block) noexcept;
  bool count_free(std::size_t index) noexcept;
  void give_back(std::size_t index, slab const& gone) noexcept;
  std::size_t release_free_slabs_of(std::size_t index, std::size_t bytes_wanted) noexcept;

  std::array<bucket, device_classes_count_max> buckets_;
  std::size_t largest_bytes_;
  std::size_t watermark_ = 0;
  std::size_t cached_bytes_ = 0;
  std::size_t requested_bytes_ = 0;
  std::size_t stranded_bytes_ = 0;
  std::size_t held_bytes_ = 0;
  std::pmr::memory_resource* upstream_;
  std::pmr::vector<places> places_;  // by class; each as long as its class has blocks
  std::pmr::vector<slabs> slabs_;    // by class
};

}  // namespace tidemark::cuda::detail
