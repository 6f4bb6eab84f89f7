// SPDX-License-Identifier: Apache-2.0
/// @file
/// `uncaptured_memory`: a pool of the driver's and a stream, for those who keep blocks. Owns the pool.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <vector>

#include <tidemark/cuda/async_resource.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/memory_pool.hpp>

namespace tidemark::cuda::detail {

/// An `async_resource` that leaves a capture of its stream alone. What is taken in a capture is the graph's,
/// and must not be kept, so nothing is; what is given back cannot be freed there, and is freed with the first
/// call after the capture.
///
/// Invariant: there is room on record for all blocks handed out to be given back in a capture. Any thread.
class uncaptured_memory final : public std::pmr::memory_resource {
 public:
  /// @throws cuda_error, or out_of_memory if the driver lacks memory.
  uncaptured_memory(memory_pool_options const& pool, async_resource_options const& blocks,
                    std::pmr::memory_resource* bookkeeping, driver& driver);
  uncaptured_memory(uncaptured_memory const&) = delete;
  uncaptured_memory& operator=(uncaptured_memory const&) = delete;
  /// If the stream is capturing, what waits to be freed is lost: a violation (`open_capture`).
  ~uncaptured_memory() override;

  /// Gives free memory back to the system, all of it, as far as the driver does. @pre the stream is not
  /// capturing.
  void trim() noexcept;

  [[nodiscard]] memory_pool const& pool() const noexcept { return pool_; }

 private:
  struct given_back {
    void* block;
    std::size_t bytes, align;
  };

  // @throws out_of_memory, also while the stream is capturing: `because` says so; cuda_error.
  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override;
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }

  void reserve_record();
  void free_waiting() noexcept;

  driver* driver_;
  memory_pool pool_;
  async_resource blocks_;
  std::mutex mutex_;  // for what follows; the driver is not called under it
  std::pmr::vector<given_back> waiting_;
  std::size_t handed_out_ = 0;
};

}  // namespace tidemark::cuda::detail
