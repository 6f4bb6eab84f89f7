// SPDX-License-Identifier: Apache-2.0
/// @file
/// `uncaptured_memory`: stream-ordered memory for caches, also during captures. Owns the pool.
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

/// As an `async_resource` on a pool of its own, but does not disturb a capture of its stream. Memory that the
/// driver allocates in stream order during a capture would belong to the graph. So blocks that are allocated
/// during a capture lie one after another in *chunks* of mapped memory, of 2 to 64 MiB or as large as one
/// block. A chunk is used again when all its blocks are deallocated, and is unmapped after the capture,
/// behind the work of the stream. Nothing is freed during a capture: deallocated blocks of the pool are freed
/// by the first call after it, or by `trim`.
///
/// Under compute-sanitizer every block is a chunk of its own, which is one allocation of `cuMemAlloc`.
///
/// Invariant, of each chunk: `used_bytes <= range.size`; `live_blocks == 0` implies `used_bytes == 0`, or
/// `used_bytes == range.size` if the range could not be unmapped. Thread-safety: any thread. No lock is held
/// while the driver is asked for memory, because the ladder of the budget may deallocate blocks of this
/// memory.
class uncaptured_memory final : public driver_resource {
 public:
  /// @throws cuda_error; out_of_memory.
  uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                    std::pmr::memory_resource* bookkeeping, driver& driver);
  /// If the stream is capturing, blocks that wait to be freed are lost: a violation (`open_capture`).
  ~uncaptured_memory() override;

  /// Frees what is deallocated, unless the stream is capturing.
  void free_deallocated() noexcept;
  /// Frees what is deallocated, and all unused memory of the pool. @pre the stream is not capturing.
  void trim() noexcept {
    free_waiting();
    (void)driver_->trim_pool(pool_, 0);
  }

  [[nodiscard]] memory_pool const& pool() const noexcept { return pool_; }

 private:
  // @throws out_of_memory, with `because`, if the driver maps no memory during captures.
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

  device_budget* pool_budget_;  // what waits to be freed counts, too
  memory_pool pool_;
  stream_handle stream_;
  bool maps_all_;           // under compute-sanitizer, which accepts no memory of pools as a heap
  waiting_blocks waiting_;  // of the pool, deallocated during a capture

  std::mutex chunks_mutex_;  // for the next
  std::list<chunk> chunks_;
  device_budget::subscription waits_;
};

}  // namespace tidemark::gpu::detail
