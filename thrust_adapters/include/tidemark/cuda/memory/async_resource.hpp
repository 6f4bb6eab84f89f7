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

/// How a `gpu::async_resource` is made.
struct async_resource_options {
  /// Where memory comes from, as a `gpu::memory_pool` or a `cudaMemPool_t`. Must outlive the resource.
  pool_handle pool = nullptr;
  /// The stream that orders allocations and frees; null: the device's default stream. Must outlive the
  /// resource.
  stream_handle stream = nullptr;
  /// The stream's device; -1: the current device of the thread that makes the resource.
  device_number device = -1;
  /// In messages and statistics; null: the default. Must outlive the resource and its exceptions.
  char const* name = "async_resource";
};

/// The driver's stream-ordered allocator as a resource: each allocation is a call of
/// cuMemAllocFromPoolAsync, each deallocation one of cuMemFreeAsync.
///
/// Use it as the upstream of resources that call it seldom: `device_cache`, `device_pool`, an `arena`. A
/// block may be used by later work on the stream, and is freed behind the work that is on the stream at
/// its deallocation: no thread waits. For work of other streams, order its begin by an event, and free by
/// `deallocate_after`, which takes an event or the stream.
///
/// ```cpp
/// gpu::memory_pool pool;
/// gpu::async_resource memory{pool, stream};
/// void* block = memory.allocate(1 * MiB, 256);
/// launch(kernel, stream, block);
/// memory.deallocate(block, 1 * MiB, 256);  // behind the kernel
/// ```
/// While its stream is capturing, it allocates memory of the graph, which exists only while the graph
/// runs; a cache must not keep that. The device's budget counts such a block until it is deallocated.
///
/// `allocate`, `deallocate`, `stats`, `name` and `device`: `detail::driver_resource`. Thread-safety: any
/// thread.
class async_resource final : public detail::driver_resource {
 public:
  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws cuda_error or out_of_memory if the driver does not return the current device;
  /// std::invalid_argument if there is no pool, or the stream is `gpu::per_thread_stream`.
  explicit async_resource(async_resource_options const& options, driver& driver = default_driver());
  /// Of a pool and a stream of the current device. @throws as above.
  async_resource(pool_handle pool, stream_handle stream, driver& driver = default_driver())
      : async_resource{async_resource_options{.pool = pool, .stream = stream}, driver} {}

  /// Frees a block behind `event`; later work on the stream comes behind that event too. The caller keeps
  /// the event and may destroy it at once. If the stream cannot wait for it, the calling thread does; if
  /// that fails too, the block is lost: a warning (`refused_return`). @pre the event was not recorded in a
  /// capture, which waiting for it would end: there the stream is given instead.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, event_handle event) noexcept;

  /// The same behind what is on `last_used_on` now, a stream of the same device. In one capture with the
  /// resource's stream, the order is captured. If only that stream is capturing, the block is in the graph,
  /// whose launches use it: it is lost, a warning; of two captures both end (`gpu::put_behind`). A null
  /// stream needs its type, `stream_handle{}`: `nullptr` may be an event too, and does not compile.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align,
                        stream_handle last_used_on) noexcept;

  /// The stream that orders allocations and frees.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }
  /// The pool.
  [[nodiscard]] pool_handle pool() const noexcept { return pool_; }

 private:
  [[nodiscard]] bool wait() noexcept;
  // @throws std::bad_alloc.
  detail::outcome allocate_block(std::size_t bytes, std::uintptr_t& block) override;
  detail::outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;

  pool_handle pool_;
  stream_handle stream_;
  tidemark::detail::fork_safe<> graph_blocks_mutex_;  // for the next
  std::set<std::uintptr_t> graph_blocks_;  // allocated during captures, if the pool is a `gpu::memory_pool`
  device_budget::subscription waits_;      // likewise
};

}  // namespace tidemark::gpu
