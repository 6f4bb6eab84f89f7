// SPDX-License-Identifier: Apache-2.0
/// @file
/// `uncaptured_memory`: stream-ordered memory for caches, also during captures. Owns the pool.
///
/// Memory that the driver allocates in stream order during a capture would belong to the graph. Blocks of a
/// capture are therefore stacked in *chunks* of mapped memory, of 2 to 64 MiB or as large as one block. A
/// chunk is reused once all its blocks are deallocated, and is unmapped after the capture, behind the work of
/// the stream. Under compute-sanitizer every block is its own chunk, which is one allocation of `cuMemAlloc`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory_resource>
#include <mutex>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/driver_resource.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>
#include <tidemark/cuda/memory/memory_pool.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>

namespace tidemark::gpu::detail {

/// An `async_resource` on its own pool that does not disturb a capture of its stream. Nothing is freed during
/// a capture: the first later call, or `trim`, frees deallocated blocks of the pool.
///
/// Invariants of each chunk: `used_bytes <= range.size`; `live_blocks == 0` implies `used_bytes == 0`, or
/// `used_bytes == range.size` if the range could not be unmapped. Thread-safety: any thread. No lock is held
/// during a request to the driver for memory, because the budget's relief may deallocate blocks of this
/// memory.
class uncaptured_memory final : public driver_resource {
 public:
  /// @throws cuda_error; out_of_memory.
  uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                    std::pmr::memory_resource* bookkeeping, driver& driver);
  /// Frees all blocks. If the stream is capturing, deallocated blocks that are not freed yet are lost, with a
  /// violation (`open_capture`).
  ~uncaptured_memory() override;

  /// Frees deallocated blocks, unless the stream is capturing.
  void free_deallocated() noexcept;
  /// Frees deallocated blocks and all unused memory of the pool. @pre The stream is not capturing.
  void trim() noexcept {
    free_waiting();
    (void)driver_->trim_pool(pool_, 0);
  }

  [[nodiscard]] memory_pool const& pool() const noexcept { return pool_; }

 private:
  // @throws out_of_memory, with a reason, if the driver maps no memory during captures.
  outcome allocate_block(std::size_t bytes, std::uintptr_t& block) override;
  outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;
  struct chunk {
    virtual_memory space;
    byte_range range{};
    std::size_t used_bytes = 0;
    std::size_t live_blocks = 0;
  };
  [[nodiscard]] outcome allocate_mapped(std::size_t bytes, std::uintptr_t& block);
  [[nodiscard]] std::uintptr_t allocate_in_chunk(std::size_t bytes) noexcept;
  [[nodiscard]] bool deallocate_mapped(std::uintptr_t block) noexcept;
  void free_chunks() noexcept;
  [[nodiscard]] bool wait() noexcept;
  void free_waiting() noexcept;

  device_budget* pool_budget_;  // also counts blocks that are not freed yet
  memory_pool pool_;
  stream_handle stream_;
  bool maps_all_;           // under compute-sanitizer, which accepts no memory of pools as a heap
  waiting_blocks waiting_;  // blocks of the pool that were deallocated during a capture

  std::mutex chunks_mutex_;  // for the next member
  std::list<chunk> chunks_;
  device_budget::subscription waits_;
};

}  // namespace tidemark::gpu::detail
