// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::async_resource`: stream-ordered memory from a pool of the driver. The pool owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <set>
#include <type_traits>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/driver_resource.hpp>

namespace tidemark::gpu {

/// Options of a `gpu::async_resource`.
struct async_resource_options {
  /// Source of memory, as a `gpu::memory_pool` or a `cudaMemPool_t`. Must outlive the resource.
  pool_handle pool = nullptr;
  /// Stream that orders allocations and frees; null: the device's default stream. Must outlive the resource.
  stream_handle stream = nullptr;
  /// Device of the stream; -1: the current device of the thread that makes the resource.
  device_number device = -1;
  /// Name in messages and statistics; null: the default. Must outlive the resource and its exceptions.
  char const* name = "async_resource";
};

/// The driver's stream-ordered allocator as a resource. Each allocation calls cuMemAllocFromPoolAsync, and
/// each deallocation calls cuMemFreeAsync.
///
/// Use it as the upstream of resources that seldom call their upstream: `device_cache`, `device_pool`, an
/// `arena`. Blocks are for later work on the stream. A deallocation frees a block behind the present work of
/// the stream, and no thread waits. Order the start of other streams' work by an event, and free with
/// `deallocate_after`.
///
/// ```cpp
/// gpu::memory_pool pool;
/// gpu::async_resource memory{pool, stream};
/// void* block = memory.allocate(1 * MiB, 256);
/// launch(kernel, stream, block);
/// memory.deallocate(block, 1 * MiB, 256);  // behind the kernel
/// ```
/// While its stream is capturing, the resource allocates memory of the graph, which exists only while the
/// graph runs. A cache must not keep such memory. The device's budget counts such a block until its
/// deallocation.
///
/// `detail::driver_resource` documents `allocate`, `deallocate`, `stats`, `name` and `device`. Thread-safety:
/// any thread.
class async_resource final : public detail::driver_resource {
 public:
  /// Makes a resource. @param driver table of driver calls; must outlive this object.
  /// @throws cuda_error or out_of_memory if the driver does not return the current device;
  /// std::invalid_argument if there is no pool, or the stream is `gpu::per_thread_stream`.
  explicit async_resource(async_resource_options const& options, driver& driver = default_driver());
  /// Makes a resource on a pool and a stream of the current device. @throws as above.
  async_resource(pool_handle pool, stream_handle stream, driver& driver = default_driver())
      : async_resource{async_resource_options{.pool = pool, .stream = stream}, driver} {}

  /// Frees a block behind `event`; all later work on the stream waits for the event too. The caller keeps the
  /// event and may destroy it at once. If the stream cannot wait, the calling thread waits; if the thread
  /// cannot wait either, the block is lost, with a warning (`refused_return`). @pre The event was not
  /// recorded in a capture, because the wait would end the capture; pass the stream instead.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, event_handle event) noexcept;

  /// Frees a block behind the present work of `last_used_on`, a stream of the same device. If one capture has
  /// both streams, the order is captured. If only that stream is capturing, the block belongs to the graph
  /// and is lost, with a warning. Two different captures both end (`gpu::put_behind`). Write a null stream as
  /// `stream_handle{}`: `nullptr` may be an event too, and does not compile.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align,
                        stream_handle last_used_on) noexcept;

  /// Returns the stream that orders allocations and frees.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }
  /// Returns the pool.
  [[nodiscard]] pool_handle pool() const noexcept { return pool_; }

 private:
  [[nodiscard]] bool wait() noexcept;
  // @throws std::bad_alloc.
  detail::outcome allocate_block(std::size_t bytes, std::uintptr_t& block) override;
  detail::outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;

  pool_handle pool_;
  stream_handle stream_;
  tidemark::detail::fork_safe<> graph_blocks_mutex_;  // for the next member
  std::set<std::uintptr_t> graph_blocks_;             // allocated during captures, for a `gpu::memory_pool`
  device_budget::subscription waits_;                 // for a `gpu::memory_pool`
};

}  // namespace tidemark::gpu
