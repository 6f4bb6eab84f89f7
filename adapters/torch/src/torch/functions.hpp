// SPDX-License-Identifier: Apache-2.0
/// @file
/// The functions of `libtidemark_torch.so`: an allocator for PyTorch's `CUDAPluggableAllocator`.
///
/// PyTorch finds the functions by name and casts them to the types declared here (2.2 and later). These types
/// differ slightly from PyTorch's manual. `tidemark_torch.py` sets them all. Thread-safety: any thread.
/// Exceptions pass through: PyTorch converts exceptions derived from `std::exception` to RuntimeError.
/// Functions that PyTorch calls in destructors print a sentence instead.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

struct CUstream_st;

#define TIDEMARK_TORCH_API __attribute__((visibility("default")))

extern "C" {

// ---- for CUDAPluggableAllocator ---------------------------------------------------------------------------

/// `alloc`: allocates a block for work of `stream`; null for 0 bytes. Never null otherwise, because PyTorch
/// does not check for null. @throws std::runtime_error with "CUDA out of memory." and numbers without memory,
/// or with a sentence for another error of the driver or the settings.
TIDEMARK_TORCH_API void* tidemark_torch_alloc(std::size_t bytes, int device, CUstream_st* stream);
/// `free`: frees a block. Later work of the block's stream may reuse it at once, and other work after the
/// recorded streams.
TIDEMARK_TORCH_API void tidemark_torch_free(void* block, std::size_t bytes, int device,
                                            CUstream_st* stream) noexcept;
/// `set_record_stream_fn`: records that work on `stream` also uses the block. Ignores memory of other
/// allocators, as PyTorch does.
TIDEMARK_TORCH_API void tidemark_torch_record_stream(void* block, CUstream_st* stream);
/// `set_reset_fn`, for `torch.cuda.empty_cache()`: returns idle memory of all devices.
TIDEMARK_TORCH_API void tidemark_torch_reset() noexcept;
/// `set_memory_fraction_fn`: limits held memory to this fraction of the device.
TIDEMARK_TORCH_API void tidemark_torch_memory_fraction(double fraction, int device);
/// `set_base_alloc_fn`, called before a tensor is sent to another process. @throws std::runtime_error always,
/// with the reason: the other process would map the wrong memory.
TIDEMARK_TORCH_API void* tidemark_torch_base_alloc(void* block, std::size_t* bytes);
/// `set_begin_allocate_to_pool`: starts to allocate from this pool for captures on streams that `filter`
/// accepts.
TIDEMARK_TORCH_API void tidemark_torch_begin_pool(int device,
                                                  std::pair<unsigned long long, unsigned long long> pool,
                                                  std::function<bool(CUstream_st*)> filter);
/// `set_end_allocate_to_pool_fn`.
TIDEMARK_TORCH_API void tidemark_torch_end_pool(int device,
                                                std::pair<unsigned long long, unsigned long long> pool);
/// `set_release_pool`: reports the end of a graph of the pool. After the last graph, the next
/// `tidemark_torch_reset` or a lack of memory returns the pool's memory.
TIDEMARK_TORCH_API void tidemark_torch_release_pool(
    int device, std::pair<unsigned long long, unsigned long long> pool) noexcept;

/// `alloc` for a `torch.cuda.MemPool`, behind PyTorch's own allocator. Returns null without memory, because
/// PyTorch checks for null, frees memory, and raises its own error.
TIDEMARK_TORCH_API void* tidemark_torch_segment_alloc(std::size_t bytes, int device, CUstream_st* stream);
/// `free` for a `torch.cuda.MemPool`: waits for the device, as `cudaFree` does.
TIDEMARK_TORCH_API void tidemark_torch_segment_free(void* segment, std::size_t bytes, int device,
                                                    CUstream_st* stream) noexcept;

// ---- for tidemark_torch.py --------------------------------------------------------------------------------
// Each function returns null or an error sentence, which is valid until the thread's next call.

/// Selects the memory of the process: null or a negative number leaves a setting to the environment.
TIDEMARK_TORCH_API char const* tidemark_torch_configure(char const* resource, long long max_cached_bytes,
                                                        char const* trace, long long max_kinds) noexcept;
/// Begins a step of a kind on all devices, and ends the previous step.
TIDEMARK_TORCH_API char const* tidemark_torch_begin_step(long long kind) noexcept;
/// Ends the open step, if any.
TIDEMARK_TORCH_API char const* tidemark_torch_end_step() noexcept;
/// Completes the file of the trace.
TIDEMARK_TORCH_API char const* tidemark_torch_close_trace() noexcept;
/// Returns statistics of a device as a JSON object; "{}" if the device has no memory yet. Valid as long as a
/// sentence.
TIDEMARK_TORCH_API char const* tidemark_torch_stats(int device) noexcept;

}  // extern "C"
