// SPDX-License-Identifier: Apache-2.0
/// @file
/// `segment_memory`: segments for PyTorch's own allocator under a `torch.cuda.MemPool`. Owns them.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/pool/reuse_cache.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

namespace tidemark::torch {

/// Segments in place of `cudaMalloc` and `cudaFree`. PyTorch's allocator cuts and orders them itself. It may
/// use a segment on any stream, and frees it with a wait for the device, as `cudaFree` does. A returned
/// segment is therefore free for any stream. Segments are plain driver blocks, because they may be allocated
/// during a capture.
///
/// Thread-safety: any thread, except the destructor.
class segment_memory {
 public:
  /// The first `allocate` makes the upstream and the cache, and throws the exceptions of the driver.
  /// @param log null: no trace
  segment_memory(gpu::device_number device, std::optional<std::size_t> max_cached_bytes, trace_log* log,
                 gpu::driver& driver) noexcept
      : driver_{&driver}, device_{device}, log_{log}, max_cached_bytes_{max_cached_bytes} {}
  segment_memory(segment_memory const&) = delete;
  segment_memory& operator=(segment_memory const&) = delete;
  ~segment_memory() = default;

  /// Allocates a segment. @throws out_of_memory, cuda_error.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Returns a segment after a wait for the device. If the wait fails, the segment waits for the next call of
  /// this function or `collect`. @return false if no segment begins at the address.
  bool deallocate(void* segment) noexcept;
  /// Returns unused segments to the device.
  void collect() noexcept;
  /// Returns the allocated bytes.
  [[nodiscard]] std::size_t used_bytes() const noexcept;

 private:
  void return_waiting() noexcept;

  gpu::driver* driver_;
  gpu::device_number device_;
  trace_log* log_;
  std::optional<std::size_t> max_cached_bytes_;
  mutable std::mutex mutex_;  // protects the members below
  std::optional<gpu::device_resource> blocks_;
  std::optional<reuse_cache> cache_;
  std::optional<trace_resource> traced_;
  std::unordered_map<void*, std::size_t> live_;  // segments and their bytes
  std::vector<void*> waiting_;                   // freed, and perhaps in use; capacity for all live segments
  std::size_t used_bytes_ = 0;
};

}  // namespace tidemark::torch
