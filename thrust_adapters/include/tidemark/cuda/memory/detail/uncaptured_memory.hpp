// SPDX-License-Identifier: Apache-2.0
/// @file
/// `uncaptured_memory`: stream-ordered memory for caches. Owns the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/driver_resource.hpp>
#include <tidemark/cuda/memory/detail/waiting_blocks.hpp>
#include <tidemark/cuda/memory/memory_pool.hpp>

namespace tidemark::gpu::detail {

/// As an `async_resource` on a pool of its own, but does not disturb a capture of its stream. During a
/// capture it allocates nothing, because the memory would be the graph's, and frees nothing: deallocated
/// blocks are freed with the first call after the capture.
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
  // @throws out_of_memory, with `because` if the stream is capturing.
  outcome allocate_block(std::size_t bytes, std::uintptr_t& block) override;
  outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;
  void free_waiting() noexcept;

  device_budget* budget_;  // what waits to be freed counts, too
  memory_pool pool_;
  stream_handle stream_;
  waiting_blocks waiting_;  // deallocated during a capture
};

}  // namespace tidemark::gpu::detail
