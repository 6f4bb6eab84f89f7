// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_cache`: reuses a device's blocks by exact size. The cache owns its free blocks.
///
/// A block is for work on the cache's stream. A block that only this stream used is *ready* at once, because
/// later work of the stream runs after it. A block that another stream used is *pending* until an event of
/// that stream is seen to be done. The cache's stream does not wait for the event (decision 18).
///
/// While its stream is capturing, the cache still reuses and keeps blocks. It makes no call that would
/// invalidate the capture: it queries no event, waits for nothing and frees nothing. A miss maps memory, and
/// throws out_of_memory if the driver does not map memory during captures. If captured work uses a block,
/// pass its stream to `deallocate`, even the cache's own: the block then stays live while launches may use
/// it. Captures of other streams are not disturbed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <optional>
#include <type_traits>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>
#include <tidemark/cuda/resources/detail/stream_returns.hpp>
#include <tidemark/cuda/resources/device_pools.hpp>
#include <tidemark/pool/detail/reuse_cache_owner.hpp>
#include <tidemark/pool/reuse_cache.hpp>

namespace tidemark {

/// Options of a `device_cache`.
struct device_cache_options {
  /// Stream that uses the blocks; null: the device's default stream. Must outlive the cache.
  gpu::stream_handle stream = nullptr;
  /// Device of the stream; -1: the current device of the thread that makes the cache.
  gpu::device_number device = -1;
  /// Maximum ready blocks of one size; 0: no limit. Above the limit the oldest block is returned.
  std::size_t max_blocks_per_size = 64;
  /// Maximum bytes of ready blocks; 0: no limit. Above the limit the largest block is returned. If empty, the
  /// environment variable `TIDEMARK_DEVICE_CACHE_MIB` sets the number of MiB in digits, which the constructor
  /// reads. If the variable is unset, empty or invalid, the limit is 1 GiB; an invalid value also warns
  /// (`refused_setting`). Each cache has its own limit.
  // GCC warns about omitted members without initializers.
  std::optional<std::size_t> max_cached_bytes = {};  // NOLINT(readability-redundant-member-init)
  /// Source of blocks; null: a heap of the cache's own, as of a `device_pool`. It must be thread-safe if
  /// several threads use the cache, and must not be a resource of another stream. Must outlive the cache.
  /// Blocks return to it as those of `device_pool_options::upstream`.
  std::pmr::memory_resource* upstream = nullptr;
  /// Source of the cache's records, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the cache. It is called under the cache's locks and must not call back.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Name in messages and statistics; null: the default. Must outlive the cache and its exceptions.
  char const* name = "device_cache";
};

/// Keeps deallocated blocks of a device and reuses them for requests of exactly their size, without a driver
/// call or a wait.
///
/// Use it above an upstream whose calls are slow, such as a `gpu::async_resource`. Otherwise use a
/// `device_pool` or `device_pools`, which hold less memory.
///
/// ```cpp
/// device_cache tensors{{.stream = stream}};
/// void* gradient = tensors.allocate(4096);
/// launch(kernel, stream, gradient);
/// tensors.deallocate(gradient, 4096);         // at once free for later work of `stream`
/// void* loss = tensors.allocate(256);
/// launch(copy, copies, loss);
/// tensors.deallocate(loss, 256, 256, copies); // free when the copy is seen to be done
/// ```
/// A pointer to the cache shares its blocks and counts.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache`.
///
/// Complexity: as `reuse_cache`, plus O(streams) for each block of another stream. Thread-safety: any thread,
/// except construction, destruction and `check_invariants()`. The driver is called without a lock. Level 2
/// makes the checks of `reuse_cache`.
class device_cache final : public detail::forwarding_resource<device_cache>,
                           private detail::reuse_cache_owner {
 public:
  /// Minimum alignment of every block.
  static constexpr std::size_t default_alignment = gpu::driver_block_alignment;

  /// Makes a cache. @param driver table of driver calls; must outlive this object.
  /// @throws std::invalid_argument if the stream is `gpu::per_thread_stream`; cuda_error if the driver
  /// refuses, for example without a device; out_of_memory if the driver has no memory.
  explicit device_cache(device_cache_options const& options = {},
                        gpu::driver& driver = gpu::default_driver());
  /// Waits for the events of pending blocks and returns all blocks to the upstream. Live blocks can no longer
  /// be deallocated; level 2 reports them (`violation_kind::leak`). If the stream is capturing, the
  /// destructor does not wait, loses the memory of the cache's own heap, and reports a violation
  /// (`open_capture`).
  ~device_cache() override;

  /// Allocates a block for future work on the stream: the oldest ready block, or a block of the upstream.
  ///
  /// If the size has pending blocks but no ready block, the request queries events: for each stream, up to
  /// the first event that is not done. The queries stop after 32 such events. The request makes a few other
  /// driver calls. If the upstream has no memory, the cache returns all blocks, pending blocks after a wait,
  /// waits for the stream, makes other resources of the device return memory (`gpu::device_budget::relieve`),
  /// and calls the upstream once more. Other resources without memory make a cache with its own heap return
  /// memory too, on their threads, unless the caller has set `bookkeeping`.
  /// @param bytes size of the block; 0 gives its own block without usable bytes.
  /// @param align a power of two; rounded up to `default_alignment`.
  /// @throws out_of_memory if the upstream has no memory after this retry; other exceptions of the upstream,
  /// such as cuda_error of the cache's own heap. Nothing is allocated then, and the cache stays usable.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment);

  /// Returns a block that later work of the stream may use at once. Does nothing for null. @pre No captured
  /// work uses the block.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    cache_.deallocate(block, bytes, aligned(align));
  }

  /// Returns a block that is used by work on `last_used_on`, a stream of the same device. The block is
  /// pending until the work is seen to be done. If no event can be recorded, the calling thread waits for the
  /// stream; if the wait fails, the block stays live, with a warning (`refused_return`).
  ///
  /// If the stream is capturing, the block belongs to the graph and stays live until `release_captured()` or
  /// the end of the cache. While a blocking stream is capturing, the legacy default stream cannot be queried.
  /// A block that the default stream used then stays live until `collect`, `release_captured`, or a request
  /// without memory after the capture.
  void deallocate(void* block, std::size_t bytes, std::size_t align,
                  gpu::stream_handle last_used_on) noexcept;

  /// Returns all ready blocks to the upstream, and pending blocks whose work is done. With `force` it also
  /// returns the other pending blocks, each after a wait. The cache's own heap then returns its idle memory
  /// to the device, after a wait for the stream. Does nothing while the stream is capturing.
  /// @return bytes returned. O(kept blocks).
  std::size_t collect(bool force = false) noexcept;
  /// Calls `collect(true)`, on behalf of a resource above the cache.
  void release_unused() noexcept override { (void)collect(true); }

  /// Makes the blocks ready that were deallocated behind captured work. @pre The graphs of those captures
  /// have ended.
  /// @return bytes. O(blocks).
  std::size_t release_captured() noexcept;

  /// Returns a snapshot in numbers. O(1).
  [[nodiscard]] reuse_cache_stats stats() const noexcept { return cache_.stats(); }
  /// Returns the options in effect, with default device, limit and resources filled in.
  [[nodiscard]] device_cache_options const& options() const noexcept { return options_; }
  /// Returns the source of blocks: the upstream of the options, or the cache's own heap.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// Returns the stream that uses the blocks.
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return options_.stream; }
  /// Returns the name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation if an invariant does not hold. O(kept blocks). @pre No other thread uses the cache.
  void check_invariants() const noexcept { cache_.check_invariants(); }

 private:
  [[nodiscard]] static std::size_t aligned(std::size_t align) noexcept {
    return (std::max)(align, default_alignment);
  }
  /// The heap of the stream as an upstream.
  class own_heap final : public detail::forwarding_resource<own_heap> {
   public:
    own_heap(device_cache_options const& options, gpu::driver& driver)
        : pools_{{.device = options.device, .name = options.name}, driver}, stream_{options.stream} {
      (void)pools_.on(stream_);
    }
    void* allocate(std::size_t bytes, std::size_t align) { return pools_.allocate(bytes, align, stream_); }
    // No captured work uses the block.
    void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
      pools_.deallocate(block, bytes, align);
    }
    void release_unused() noexcept override { (void)pools_.trim(); }

   private:
    device_pools pools_;
    gpu::stream_handle stream_;
  };

  [[nodiscard]] reuse_cache_options options_of_cache();
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align, char const* because) const;
  [[nodiscard]] bool is_capturing() const noexcept;
  bool relieve() noexcept override;
  void query(std::function<void()> const& queries) noexcept override { returns_.events().query(queries); }

  gpu::driver* driver_;
  device_cache_options options_;
  std::optional<own_heap> own_;
  gpu::detail::stream_returns returns_;
  std::optional<gpu::detail::waiting_upstream> waiting_;  // if the stream does not order the upstream
  reuse_cache cache_;                                     // declared after the receivers of its blocks
  gpu::device_budget::subscription budget_subscription_;
};

}  // namespace tidemark
