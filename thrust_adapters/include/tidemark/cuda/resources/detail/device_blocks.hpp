// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_blocks`: the free lists of a `device_pool`, beside the memory and never in it, and the memory
/// behind them, which they own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <unordered_map>
#include <vector>

#include <tidemark/core/macros.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>
#include <tidemark/cuda/resources/detail/device_classes.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/pending_work.hpp>

namespace tidemark {

struct device_pool_options;

}  // namespace tidemark

namespace tidemark::gpu::detail {

/// Slabs, each cut into blocks of one class, and for each class an array of the addresses of its free blocks,
/// last in, first out; and blocks beyond the classes, one by one. The free lists of a `basic_pool`.
///
/// ```text
/// array of a class:  begin ........ floor ........ top ........ end
///                    stranded       listed         room for live blocks
/// ```
/// There is room in the array for every block of the class, made when their slab is taken, so that
/// deallocation needs no memory. *Stranded* blocks were set aside by a trim because their slab cannot go back
/// yet: the oldest of the free ones, so that to strand is to raise the floor.
///
/// Invariants: `begin <= floor <= top <= end == begin + blocks in slabs` for each class; a free block is one
/// of a slab of its class; `cached_bytes() == sum over listed`, `stranded_bytes() == sum over stranded`,
/// `slab_bytes_ == sum over slabs`, `large_bytes_ == sum over large blocks`.
///
/// Memory goes back when the work on the stream is done with it: the pool's own upstream sees to that, as one
/// that is a resource of the same stream does; others stand behind a `waiting_upstream`.
///
/// Complexity: O(1) where not said otherwise. One thread at a time.
class device_blocks {
 public:
  static constexpr char const* kind = "device_pool";
  static constexpr bool host_accessible = false;
  static constexpr std::size_t default_alignment = device_classes::granule_bytes;

  /// @param options complete, except for an upstream. @param driver for the upstream that is made if there is
  /// none.
  device_blocks(device_pool_options const& options, driver& driver);
  device_blocks(device_blocks const&) = delete;
  device_blocks& operator=(device_blocks const&) = delete;
  ~device_blocks() { release(); }

  /// A listed block; null if there is none.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    return serves_at_once(bytes, align) ? take_listed(bytes) : nullptr;
  }
  /// Lists a block, unless no class serves it or all blocks of its class are free already.
  [[nodiscard]] tidemark::detail::free_result give(void* block, std::size_t bytes,
                                                   std::size_t align) noexcept {
    return serves_at_once(bytes, align) ? list(block, bytes) : tidemark::detail::free_result::not_listed;
  }
  /// Where `take` returned null: lists stranded blocks or a new slab, or allocates a large block.
  /// @throws what the upstream throws, after `release_free(0)` and another call, or the bookkeeping resource;
  /// out_of_memory for what is beyond PTRDIFF_MAX. Nothing has changed then. O(blocks of the slab).
  [[nodiscard]] void* take_slow(std::size_t bytes, std::size_t align);
  /// Where `give` returned `result`, which is not `listed`: deallocates a large block, or reports a
  /// violation.
  void give_slow(void* block, std::size_t bytes, std::size_t align,
                 tidemark::detail::free_result result) noexcept;
  /// `give` reports when more than this is cached.
  void set_watermark(std::size_t bytes) noexcept { watermark_ = bytes; }
  /// Posts a trim to the thread that uses the blocks: its next `take` or `give` fails, and its slow path
  /// returns all that is free. Any thread.
  void post_trim() noexcept { pending_.post(); }

  /// Returns slabs whose blocks are all free to the upstream, the largest blocks first, until no more than
  /// that is listed and stranded. @return bytes. O(free blocks * log(slabs of a class)).
  std::size_t release_free(std::size_t target_bytes) noexcept;
  /// Strands listed blocks, the largest first, until `cached_bytes() <= target_bytes`. O(classes).
  void strand(std::size_t target_bytes) noexcept;
  /// Returns everything to the upstream, also live blocks, which count as deallocated.
  void release() noexcept;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept {
    return waiting_ ? waiting_->upstream() : upstream_;
  }
  /// O(classes).
  [[nodiscard]] tidemark::detail::block_counts counts() const noexcept;
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_ + large_bytes_; }
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  /// All of them are blocks of classes.
  [[nodiscard]] std::size_t stranded_block_bytes() const noexcept { return stranded_bytes(); }
  [[nodiscard]] std::size_t held_bytes() const noexcept { return slab_bytes_ + large_bytes_; }
  /// Of live blocks of the classes.
  [[nodiscard]] std::size_t live_bytes() const noexcept {
    return slab_bytes_ - cached_bytes_ - stranded_bytes_;
  }
  /// The first invariant that does not hold, as a formula; null if all do. O(free blocks * log(slabs of a
  /// class)).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  struct alignas(64) size_class {  // a cache line each
    void** top = nullptr;
    void** floor = nullptr;
    void** end = nullptr;
    std::size_t block_bytes = 0;
    std::uint64_t allocations = 0;
    void** begin = nullptr;
    [[nodiscard]] std::size_t stranded_blocks() const noexcept {
      return static_cast<std::size_t>(floor - begin);
    }
    [[nodiscard]] std::size_t listed_blocks() const noexcept { return static_cast<std::size_t>(top - floor); }
    [[nodiscard]] std::size_t live_blocks() const noexcept { return static_cast<std::size_t>(end - top); }
  };
  struct slab {
    std::uintptr_t first;
    std::size_t blocks;
    mutable std::size_t free = 0;  // counted by each function that needs it
  };
  struct large_block {
    std::size_t bytes, align;
  };
  using slabs = std::pmr::vector<slab>;  // of one class, sorted by address
  using places = std::pmr::vector<void*>;

  [[nodiscard]] bool serves(std::size_t bytes, std::size_t align) const noexcept {
    return bytes <= largest_bytes_ && align <= device_classes::granule_bytes;
  }
  // The same, but false for all while a trim is posted.
  [[nodiscard]] bool serves_at_once(std::size_t bytes, std::size_t align) const noexcept {
    return bytes <= largest_bytes_ && pending_.serves(align);
  }
  // Of a class: a listed block, null if there is none.
  [[nodiscard]] void* take_listed(std::size_t bytes) noexcept {
    size_class& from = classes_[device_classes::index_of(bytes)];
    if (from.top == from.floor) [[unlikely]]
      return nullptr;
    ++from.allocations;
    requested_bytes_ += bytes;
    cached_bytes_ -= from.block_bytes;
    return *--from.top;
  }
  // Of a class.
  [[nodiscard]] tidemark::detail::free_result list(void* block, std::size_t bytes) noexcept {
    using tidemark::detail::free_result;
    size_class& to = classes_[device_classes::index_of(bytes)];
    if (to.top == to.end) [[unlikely]]
      return free_result::not_listed;
    *to.top++ = block;
    requested_bytes_ -= bytes;
    cached_bytes_ += to.block_bytes;
    return cached_bytes_ > watermark_ ? free_result::over_watermark : free_result::listed;
  }
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align, char const* because) const;
  void refill(std::size_t bytes, std::size_t align);
  void add_slab(std::size_t index, std::size_t blocks);
  [[nodiscard]] void* allocate_large(std::size_t bytes, std::size_t align);
  void deallocate_large(void* block, std::size_t bytes, std::size_t align) noexcept;
  template <class Call>
  auto call_upstream(Call call);
  void point_to(std::size_t index, std::size_t stranded, std::size_t free) noexcept;
  [[nodiscard]] slab const* find(std::size_t index, void const* block) const noexcept;
  bool count_free(std::size_t index) const noexcept;
  void return_to_upstream(std::size_t index, slab const& gone) noexcept;
  std::size_t release_free_of(std::size_t index, std::size_t bytes_wanted) noexcept;

  std::array<size_class, max_device_classes_count> classes_;
  std::size_t largest_bytes_;
  tidemark::detail::pending_work pending_{device_classes::granule_bytes};
  std::size_t watermark_ = 0;
  std::size_t cached_bytes_ = 0;
  std::size_t requested_bytes_ = 0;  // of live blocks of the classes
  std::size_t stranded_bytes_ = 0;
  std::size_t slab_bytes_ = 0;
  std::size_t large_bytes_ = 0;
  std::uint64_t large_allocations_ = 0;
  std::uint64_t misses_ = 0;  // of all blocks
  std::size_t wanted_slab_bytes_;
  std::size_t max_cached_bytes_;
  char const* name_;
  driver* driver_;
  device_number device_;
  std::optional<uncaptured_memory> own_;     // where the options name no upstream
  std::optional<waiting_upstream> waiting_;  // where the stream does not order the upstream of the options
  std::pmr::memory_resource* upstream_;      // one of these, or that of the options
  std::pmr::vector<places> places_;          // by class; each as long as its class has blocks
  std::pmr::vector<slabs> slabs_;            // by class
  std::pmr::unordered_map<void*, large_block> large_;  // live
  device_budget::subscription gives_back_;             // posts trims
};

}  // namespace tidemark::gpu::detail
