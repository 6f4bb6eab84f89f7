// SPDX-License-Identifier: Apache-2.0
/// @file
/// `standard_pools`: the pools of the standard's pool resources, which own the memory they took, and what
/// both resources have in common.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <type_traits>

#include <tidemark/compat/detail/upstream_chunks.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/large_blocks.hpp>

namespace tidemark::detail {

/// A pool for each multiple of 8 bytes up to 64, then for four sizes to each doubling up to the largest block, by
/// the rules of [mem.res.pool.overview]. A block is at most a fifth larger than a request above 64 bytes, and no
/// larger than a block of libstdc++'s pools. Unlike `pool` it keeps all it knows in the upstream's memory.
///
/// Invariants: of each pool `[cursor, end)` is the part of its newest chunk that was never allocated, a whole
/// number of blocks. One thread at a time.
class standard_pools {
 public:
  static constexpr std::size_t max_largest_block_bytes = 256 * KiB;
  /// A block that is aligned to more is a block of the upstream.
  static constexpr std::size_t max_alignment = 4 * KiB;
  static constexpr std::size_t max_chunk_blocks = std::size_t{1} << 18;

  standard_pools(std::pmr::pool_options const& options, std::pmr::memory_resource* upstream) noexcept;
  standard_pools(standard_pools const&) = delete;
  standard_pools& operator=(standard_pools const&) = delete;
  ~standard_pools() = default;

  /// @throws what the upstream throws; nothing has changed then. O(1).
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);
  /// Does nothing for null. O(1).
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  /// Returns everything to the upstream, also live blocks.
  void release() noexcept;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return chunks_.upstream(); }
  [[nodiscard]] std::pmr::pool_options options() const noexcept {
    return {.max_blocks_per_chunk = max_blocks_, .largest_required_pool_block = block_bytes(pool_count_ - 1)};
  }

 private:
  static constexpr std::size_t min_block_bytes = sizeof(free_block);
  static constexpr std::size_t linear_bytes = 64;  // up to it a block size is a multiple of the least
  static constexpr std::size_t steps = 4;          // block sizes to each doubling above
  static constexpr std::size_t linear_count = linear_bytes / min_block_bytes;
  static constexpr std::size_t max_pool_count =
      linear_count +
      steps * static_cast<std::size_t>(std::countr_zero(max_largest_block_bytes / linear_bytes));

  struct size_pool {
    free_block* free = nullptr;  // last in, first out
    std::uintptr_t cursor = 0;
    std::uintptr_t end = 0;
    std::size_t blocks = 0;  // of the newest chunk; 0: there was none
  };

  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t index) noexcept {
    if (index < linear_count) return (index + 1) * min_block_bytes;
    const std::size_t doubling = (index - linear_count) / steps, step = (index - linear_count) % steps + 1;
    return (linear_bytes << doubling) + (linear_bytes / steps << doubling) * step;
  }
  /// The pool with the least blocks that hold the request; `pool_count_` or more if none does.
  [[nodiscard]] static std::size_t index_of(std::size_t bytes, std::size_t align) noexcept {
    if (align > max_alignment || bytes > max_largest_block_bytes) return max_pool_count;
    // A size that is a multiple of the alignment is rounded to one that is: steps divide it, or it divides them.
    const std::size_t last = align_up(std::max<std::size_t>(bytes, 1), align) - 1;
    if (last < linear_bytes) return last / min_block_bytes;
    const auto doubling = static_cast<std::size_t>(std::bit_width(last / linear_bytes)) - 1;
    return linear_count - steps + steps * doubling + last / (linear_bytes / steps << doubling);
  }
  void add_chunk(std::size_t index);

  std::size_t max_blocks_;  // of a chunk
  std::size_t pool_count_;
  std::array<size_pool, max_pool_count> pools_{};
  upstream_chunks chunks_;  // of all pools
  large_blocks large_;
};

/// A mutex for one thread.
struct no_mutex {
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// A pool resource of the standard, with a lock that is taken in each call.
template <class Mutex>
class standard_pool_resource : public distinct_resource {
 public:
  /// Pools of the default options, from the default resource.
  standard_pool_resource() noexcept : standard_pool_resource{std::pmr::get_default_resource()} {}
  /// Pools of the default options, from `upstream`. @pre `upstream` is not null and outlives the resource,
  /// here and below.
  explicit standard_pool_resource(std::pmr::memory_resource* upstream) noexcept
      : standard_pool_resource{std::pmr::pool_options{}, upstream} {}
  /// Pools as `options` say, from the default resource.
  explicit standard_pool_resource(std::pmr::pool_options const& options) noexcept
      : standard_pool_resource{options, std::pmr::get_default_resource()} {}
  /// Pools as `options` say, from `upstream`. A limit of 0, or one that is too large, is replaced by the
  /// largest there is: blocks of 256 KiB, and 2^18 blocks a chunk.
  standard_pool_resource(std::pmr::pool_options const& options, std::pmr::memory_resource* upstream) noexcept
      : pools_{options, upstream} {}

  /// Returns everything to the upstream, also live blocks. The resource can be used as before. O(chunks +
  /// large blocks).
  void release() noexcept(std::is_same_v<Mutex, no_mutex>) {
    const std::scoped_lock lock{mutex_};
    pools_.release();
  }

  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return pools_.upstream(); }
  /// The limits that hold, neither of them 0: the largest block of a pool, and the most blocks of a chunk.
  [[nodiscard]] std::pmr::pool_options options() const noexcept { return pools_.options(); }

 protected:
  /// Returns everything to the upstream, also live blocks.
  ~standard_pool_resource() override = default;

  /// A block; one of 0 bytes is as good as one of 1, and differs from all others. @throws what the upstream
  /// throws, and nothing else, also where it cannot have so much; nothing has changed then.
  [[nodiscard]] void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    return pools_.allocate(bytes, align);
  }
  /// Takes a block back, with the size and alignment it was allocated with. Does nothing for null.
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    const std::scoped_lock lock{mutex_};
    pools_.deallocate(block, bytes, align);
  }

 private:
  Mutex mutex_;
  standard_pools pools_;
};

}  // namespace tidemark::detail
