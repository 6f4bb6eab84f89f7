// SPDX-License-Identifier: Apache-2.0
/// @file
/// `uncaptured_memory`: stream-ordered memory for caches, also during captures. Owns the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <mutex>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/driver_resource.hpp>
#include <tidemark/cuda/memory/detail/waiting_blocks.hpp>
#include <tidemark/cuda/memory/memory_pool.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>

namespace tidemark::gpu::detail {

/// As an `async_resource` on a pool of its own, but does not disturb a capture of its stream. Memory that the
/// driver allocates in stream order during a capture would belong to the graph, so a block that is allocated
/// then is mapped to addresses of its own (`virtual_memory`). Nothing is freed during a capture: deallocated
/// blocks are freed by the first call after it, mapped ones after a wait for the stream. Under compute-sanitizer
/// every block is allocated so, and is one allocation of `cuMemAlloc`.
///
/// Thread-safety: any thread.
class uncaptured_memory final : public driver_resource {
 public:
  /// @throws cuda_error; out_of_memory.
  uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                    std::pmr::memory_resource* bookkeeping, driver& driver);
  /// If the stream is capturing, blocks that wait to be freed are lost: a violation (`open_capture`).
  ~uncaptured_memory() override;

  /// Frees all unused memory of the pool. @pre the stream is not capturing.
  void trim() noexcept { (void)driver_->trim_pool(pool_, 0); }

  [[nodiscard]] memory_pool const& pool() const noexcept { return pool_; }

 private:
  // @throws out_of_memory, with `because`, if the driver maps no memory during captures.
  outcome allocate_block(std::size_t bytes, std::uintptr_t& block) override;
  outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;
  [[nodiscard]] outcome map_block(std::size_t bytes, std::uintptr_t& block);
  [[nodiscard]] bool retire_mapped(std::uintptr_t block) noexcept;
  void free_waiting() noexcept;

  device_budget* budget_;  // what waits to be freed counts, too
  memory_pool pool_;
  stream_handle stream_;
  bool maps_all_;           // under compute-sanitizer, which accepts no memory of pools as a heap
  waiting_blocks waiting_;  // of the pool, deallocated during a capture

  using mapped_blocks = std::map<std::uintptr_t, virtual_memory>;
  std::mutex mapped_mutex_;  // for the next two
  mapped_blocks mapped_;     // live blocks that were allocated during a capture
  mapped_blocks retired_;    // deallocated ones, which the next call outside of a capture frees
  device_budget::subscription trims_;
};

}  // namespace tidemark::gpu::detail
