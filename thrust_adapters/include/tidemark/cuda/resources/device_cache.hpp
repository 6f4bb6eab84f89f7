// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_cache`: a device's blocks that are reused by exact size. The cache owns the free blocks that it
/// keeps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory_resource>
#include <optional>
#include <type_traits>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/async_resource.hpp>
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>
#include <tidemark/cuda/resources/detail/stream_returns.hpp>
#include <tidemark/pool/reuse_cache.hpp>

namespace tidemark {

/// How a device's cache is made.
struct device_cache_options {
  /// Whose work uses the blocks; null: the device's default stream. Must outlive the cache.
  gpu::stream_handle stream = nullptr;
  /// The stream's device; -1: the one that is current for the thread that makes the cache.
  gpu::device_number device = -1;
  /// Blocks of one size that are kept ready, at most; 0: without limit.
  std::size_t max_blocks_per_size = 64;
  /// Bytes that are kept ready in all, at most; 0: without limit. Left empty it is what the environment
  /// variable `TIDEMARK_DEVICE_CACHE_MIB` says, a number of MiB in digits. Where that is unset, empty or
  /// something else, which is warned of (`refused_setting`), it is a quarter of the device's memory
  /// (cuMemGetInfo's total), or 1 GiB if the driver does not tell that or the stream is capturing. Both are
  /// read when the cache is made. Each cache has its own: where several share a device, say what each may
  /// keep.
  // GCC warns about members that are left out unless they have initializers.
  std::optional<std::size_t> max_cached_bytes = {};  // NOLINT(readability-redundant-member-init)
  /// Bytes, used and unused, up to which the cache's own pool of the driver's keeps unused memory when
  /// something is waited for: see `gpu::memory_pool_options`. By default it keeps all until the cache trims
  /// it. Not used where there is an upstream.
  std::size_t release_threshold_bytes = (std::numeric_limits<std::size_t>::max)();
  /// Where blocks come from; null: a `gpu::memory_pool` of the cache's own, in the order of the stream. It
  /// must allow threads if the cache is used by several, and not be a resource of another stream. Must
  /// outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Whether the stream orders the upstream, as in `device_pool_options`. If not, each block goes back to it
  /// after a wait for the stream.
  std::optional<bool> upstream_is_ordered = {};  // NOLINT(readability-redundant-member-init)
  /// Where the cache's own records come from, which the host writes; null: `std::pmr::new_delete_resource()`.
  /// Must outlive the cache. It is called under the cache's locks and must not call back.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// In messages and statistics; null: the default. Must outlive the cache and its exceptions.
  char const* name = "device_cache";
};

/// Keeps deallocated blocks of a device and allocates them again to requests of exactly their size: without a
/// call of the driver, and without a wait.
///
/// Use it for tensors, which repeat their sizes exactly, and where several streams or threads are about. For
/// many small blocks of many sizes `device_pool` is better, for blocks that die together a `device_arena`;
/// memory whose addresses go into a captured graph comes from a `graph_arena`.
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
/// One cache, one stream. A block goes to work that is put on the cache's stream, and so a block deallocated
/// by work of that stream is *ready* at once: later work comes behind it. A block that another stream still
/// uses is *pending* behind an event of that stream until it is seen to be done. The cache's stream is not
/// made to wait for that event, because then all its later work would, whatever block it uses; the price is
/// that a pending block may be seen to be done a few requests late.
///
/// Of a size the block that has been ready for longest is allocated first. Ready blocks are kept up to
/// `max_blocks_per_size` of a size, beyond which the oldest is returned, and `max_cached_bytes` bytes in all,
/// beyond which the largest are returned. Where the upstream has no memory (std::bad_alloc) there is one
/// attempt more: everything that is kept is returned, pending blocks after a wait; the stream is waited for,
/// so that they are free; the cache's own pool is trimmed, so that others can have what it does not use;
/// others of the device are asked for memory (`gpu::device_budget`); and the upstream is called once more.
/// They ask this cache, too, on their threads, if its upstream and its bookkeeping are its own.
///
/// A request of 0 bytes gets a block, as std::pmr wants it: one of its own that nothing may be written to. To
/// deallocate null does nothing.
///
/// A cache is shared by its address: a pointer to it, or a `std::pmr::polymorphic_allocator`, copied or not,
/// sees the same blocks and counts.
///
/// While its stream is capturing, ready blocks are allocated and deallocated blocks are kept as always. The
/// cache makes no call that would invalidate the capture: it queries no event, waits for nothing, and frees
/// nothing. It allocates nothing from its own pool, whose memory would be the graph's; a miss maps memory to
/// addresses of its own, and throws out_of_memory if the driver does not map memory during captures. What a
/// graph uses comes from a `graph_arena`, or through a `capture_switch`; where captured work uses a block all
/// the same, the block is deallocated with its stream named, be it the cache's own: then it stays live as
/// long as launches may use it. Captures of other streams are not disturbed.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache`.
///
/// Complexity: that of `reuse_cache`, and O(streams) for each block that another stream used. Events of one
/// stream are done in order, and only the first of a stream is queried: a request that finds no ready block
/// makes one query for each stream with pending blocks of its size, 32 at most, and a few other calls of the
/// driver in all.
/// Thread-safety: any thread, any function, except construction, destruction and `check_invariants()`. No lock
/// is held while the driver is called, except that events are queried under the lock of the records, so that
/// to look and to take is one step; a query takes about a microsecond and waits for nothing. Level 2 checks
/// what `reuse_cache` does.
class device_cache final : public detail::forwarding_resource<device_cache> {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = gpu::async_resource::default_alignment;

  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws std::invalid_argument if the stream is `gpu::per_thread_stream`; cuda_error if the driver
  /// refuses, because there is no device for example, out_of_memory if that is for want of memory.
  explicit device_cache(device_cache_options const& options = {},
                        gpu::driver& driver = gpu::default_driver());
  /// Waits for the events of pending blocks and returns what is kept to the upstream. Live
  /// blocks can no longer be deallocated; level 2 reports them (`violation_kind::leak`). If the stream is
  /// capturing, nothing is waited for, and what is kept of the cache's own pool is lost: a violation
  /// (`open_capture`).
  ~device_cache() override;

  /// A block, for work that is put on the stream from now on: one that is kept, or else of the upstream.
  /// @param bytes exactly so many, also 0.
  /// @param align a power of two; less than `default_alignment` is as good as that.
  /// @throws out_of_memory if the upstream has no memory, also when it was called again after the ladder
  /// of the class comment; what else the upstream throws: cuda_error of the cache's own pool. Nothing is
  /// allocated then, and the cache can be used as before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment);

  /// Takes back a block that later work of the stream may use at once. Does nothing for null. @pre no
  /// captured work uses it.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    cache_.deallocate(block, bytes, aligned(align));
  }

  /// Takes back a block that work on `last_used_on`, a stream of the same device, uses: pending until that
  /// work is seen to be done. If no event can be recorded the calling thread waits for that stream instead;
  /// if that fails too, the block stays live: a warning (`refused_return`). If that stream is capturing, the
  /// block is in the graph, whose launches use it: it stays live until `release_captured()` or the end of the
  /// cache. Beside a capture of a blocking stream the legacy default stream cannot be looked at: a block that
  /// it used stays live until `collect`, `release_captured` or a request that finds no memory after the
  /// capture.
  void deallocate(void* block, std::size_t bytes, std::size_t align,
                  gpu::stream_handle last_used_on) noexcept;

  /// Returns all ready blocks to the upstream, and the pending ones whose work is done; with `force` the
  /// others too, each after a wait. The cache's own pool then gives its unused memory back to the device;
  /// what was just returned only with `force`, after a wait for the stream, or if the stream has come there.
  /// Nothing happens while the stream is capturing. @return bytes returned.
  /// O(kept blocks).
  std::size_t collect(bool force = false) noexcept;
  /// `collect(true)`, for a resource in front of this one.
  void release_unused() noexcept override { (void)collect(true); }

  /// Makes ready what was deallocated by captured work. @pre the graphs of those captures have ended.
  /// @return bytes. O(blocks).
  std::size_t release_captured() noexcept;

  /// A snapshot in numbers. O(1).
  [[nodiscard]] reuse_cache_stats stats() const noexcept { return cache_.stats(); }
  /// The options that hold: device, limit and resources as they were found out.
  [[nodiscard]] device_cache_options const& options() const noexcept { return options_; }
  /// The resource that blocks come from: the one of the options, or the cache's own.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The cache's own pool; null if it has an upstream.
  [[nodiscard]] gpu::pool_handle pool() const noexcept { return own_ ? own_->pool().get() : nullptr; }
  /// The stream whose work uses the blocks.
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return options_.stream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation if an invariant does not hold. O(kept blocks). @pre no other thread is using the
  /// cache.
  void check_invariants() const noexcept { cache_.check_invariants(); }

 private:
  [[nodiscard]] static std::size_t aligned(std::size_t align) noexcept {
    return (std::max)(align, default_alignment);
  }
  [[nodiscard]] reuse_cache_options options_of_cache();
  [[noreturn]] TIDEMARK_COLD void refuse(std::size_t bytes, std::size_t align, char const* because) const;
  [[nodiscard]] bool relieve() noexcept;
  [[nodiscard]] bool give_back() noexcept;

  gpu::driver* driver_;
  device_cache_options options_;
  std::optional<gpu::detail::uncaptured_memory> own_;
  gpu::detail::stream_returns returns_;
  std::optional<gpu::detail::waiting_upstream> waiting_;  // where the stream does not order the upstream
  reuse_cache cache_;                                     // behind what it returns blocks to
  gpu::device_budget::subscription gives_back_;
};

}  // namespace tidemark
