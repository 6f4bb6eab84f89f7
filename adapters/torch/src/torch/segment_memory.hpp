// SPDX-License-Identifier: Apache-2.0
/// @file
/// `segment_memory`: the segments that PyTorch's own allocator takes for a `torch.cuda.MemPool`. Owns them.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "stream_memory.hpp"

namespace tidemark::torch {

/// Segments in place of `cudaMalloc` and `cudaFree`, which PyTorch's allocator cuts and orders itself. It may
/// use a segment on any stream, and frees it as by `cudaFree`, with a wait for the device; so a segment is
/// for any stream when it comes back. They are plain blocks of the driver, because a segment may be taken
/// during a capture.
///
/// Thread-safety: any thread, but for the destructor.
class segment_memory {
 public:
  /// @throws what the driver throws, when the first segment is allocated.
  segment_memory(memory_place place, std::optional<std::size_t> max_cached_bytes);
  segment_memory(segment_memory const&) = delete;
  segment_memory& operator=(segment_memory const&) = delete;
  ~segment_memory() = default;

  /// @throws out_of_memory, cuda_error.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Takes it back after a wait for the device. If that fails, it waits for the next call of this or of
  /// `collect`. @return false if no segment begins there.
  bool deallocate(void* segment) noexcept;
  /// Returns those that are not used to the device.
  void collect() noexcept;
  /// Bytes that are allocated.
  [[nodiscard]] std::size_t used_bytes() const noexcept;

 private:
  void return_waiting() noexcept;

  memory_place place_;
  std::optional<std::size_t> max_cached_bytes_;
  mutable std::mutex mutex_;  // for what follows
  std::optional<gpu::device_resource> blocks_;
  std::optional<device_cache> cache_;
  std::optional<trace_resource> traced_;
  std::unordered_map<void*, std::size_t> live_;  // with their bytes
  std::vector<void*> waiting_;                   // freed, and perhaps used; there is room for all live ones
  std::size_t used_bytes_ = 0;
};

}  // namespace tidemark::torch
