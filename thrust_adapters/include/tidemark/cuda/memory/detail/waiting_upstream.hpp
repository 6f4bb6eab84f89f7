// SPDX-License-Identifier: Apache-2.0
/// @file
/// `waiting_upstream`: gives an upstream its blocks back when the work on a stream is done with them. Owns
/// blocks that it could not give back yet.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/waiting_blocks.hpp>

namespace tidemark::gpu::detail {

/// Stands before an upstream that knows no stream, such as `gpu::device_resource`: `cuMemFree` need not wait
/// for work that uses the memory. A block goes back after a wait for the stream. While the stream is
/// capturing, which a wait would end, or if the wait fails, blocks wait for the next call.
///
/// Thread-safety: any thread, if the upstream's is.
class waiting_upstream final : public tidemark::detail::forwarding_resource<waiting_upstream> {
 public:
  waiting_upstream(std::pmr::memory_resource* upstream, device_number device, stream_handle stream,
                   char const* name, std::pmr::memory_resource* bookkeeping, driver& driver)
      : upstream_{upstream},
        device_{device},
        stream_{stream},
        name_{name},
        driver_{&driver},
        waiting_{bookkeeping} {}
  /// If blocks still have to wait, they are lost: a violation (`open_capture`).
  ~waiting_upstream() override;

  /// @throws what the upstream or the bookkeeping resource throws; nothing is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align);
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }

 private:
  void return_waiting() noexcept;

  std::pmr::memory_resource* upstream_;
  device_number device_;
  stream_handle stream_;
  char const* name_;
  driver* driver_;
  waiting_blocks waiting_;
};

}  // namespace tidemark::gpu::detail
