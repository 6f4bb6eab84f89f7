// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::async_resource`: memory in the order of a stream, from a pool of the driver's. The memory stays the
/// pool's.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <tidemark/cuda/block_kind.hpp>
#include <tidemark/cuda/detail/over_aligned.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/detail/usage_counter.hpp>
#include <tidemark/resource_stats.hpp>

namespace tidemark::cuda {

/// How a `cuda::async_resource` is made.
struct async_resource_options {
  /// Where the memory comes from, as a `cuda::memory_pool` or a `cudaMemPool_t`. Must outlive the resource.
  pool_handle pool = nullptr;
  /// In whose order memory is taken and given back; null: the device's default stream. Must outlive the
  /// resource.
  stream_handle stream = nullptr;
  /// The stream's device; -1: the one that is current for the thread that makes the resource.
  device_number device = -1;
  /// In messages and statistics; null: the default. Must outlive the resource and its exceptions.
  char const* name = "async_resource";
};

/// The driver's stream-ordered allocator as a resource: each request is one call of cuMemAllocFromPoolAsync,
/// each block given back one of cuMemFreeAsync.
///
/// Use it as the upstream of what calls it seldom: `device_cache`, `device_pool`, an `arena`. What it hands
/// out may be used by work that is put on its stream from then on, and is given back behind the work that is
/// on its stream at that moment: nobody waits. Work of other streams that uses a block comes behind an event
/// of its stream, and `deallocate_after` gives the block back behind one of theirs.
///
/// ```cpp
/// cuda::memory_pool pool;
/// cuda::async_resource memory{pool, stream};
/// void* block = memory.allocate(1 * MiB, 256);
/// launch(kernel, stream, block);
/// memory.deallocate(block, 1 * MiB, 256);  // behind the kernel
/// ```
/// While its stream is being captured it hands out the graph's memory, which is there only while the graph
/// runs, as CUDA has it; a cache must not keep that.
///
/// Alignments beyond 256 bytes, which is what the driver promises, take so much more memory, and a record.
///
/// Complexity: one call of the driver, and for large alignments O(log(blocks of such)). Thread-safety: any
/// thread. Exceptions: below; what is given back is never refused, but the driver may not take it, which is a
/// warning (`refused_return`) and loses the block.
class async_resource final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = driver_block_alignment;

  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws cuda_error if the driver cannot tell which device is current, out_of_memory if that is for want
  /// of memory; std::invalid_argument if there is no pool.
  explicit async_resource(async_resource_options const& options, driver& driver = default_driver());
  /// Of a pool and a stream of the current device. @throws as above.
  async_resource(pool_handle pool, stream_handle stream, driver& driver = default_driver())
      : async_resource{async_resource_options{.pool = pool, .stream = stream}, driver} {}
  async_resource(async_resource const&) = delete;
  async_resource& operator=(async_resource const&) = delete;
  /// Blocks still handed out stay with their users, who give them back to the driver themselves.
  ~async_resource() override = default;

  /// A block, for work that is put on the stream from now on.
  /// @param bytes may be 0: the block then differs from all others, and nothing may be written to it.
  /// @param align a power of two.
  /// @throws out_of_memory if the driver has no memory, or no block can be so large; cuda_error if it refuses
  /// otherwise; std::invalid_argument if `align` is not a power of two. Nothing has changed then but the
  /// count of `refused`.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment);

  /// Gives a block back behind the work that is on the stream now. Null is nothing, and nothing happens.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept;

  /// Gives a block back behind `event`, and what is put on the stream from now on comes behind that event
  /// too. The event is the caller's, who may destroy it at once. If the stream cannot wait for it, the
  /// calling thread does; if that cannot either, the block is not given back: a warning (`refused_return`).
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, event_handle event) noexcept;

  /// A snapshot in numbers. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(options_.name); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// The stream in whose order memory comes and goes.
  [[nodiscard]] stream_handle stream() const noexcept { return options_.stream; }
  /// The pool that it comes from.
  [[nodiscard]] pool_handle pool() const noexcept { return options_.pool; }
  /// The stream's device.
  [[nodiscard]] device_number device() const noexcept { return options_.device; }

 private:
  [[nodiscard]] void* ask(std::size_t bytes, std::size_t align);

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  driver* driver_;
  async_resource_options options_;
  tidemark::detail::usage_counter counter_;
  detail::over_aligned over_aligned_;
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, async_resource>);
static_assert(!std::is_copy_constructible_v<async_resource>, "blocks know their resource by its address");

}  // namespace tidemark::cuda
