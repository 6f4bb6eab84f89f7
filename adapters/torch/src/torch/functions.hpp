// SPDX-License-Identifier: Apache-2.0
/// @file
/// The functions of `libtidemark_torch.so`: an allocator as PyTorch's `CUDAPluggableAllocator` takes it.
///
/// PyTorch finds them by name, and casts them to the types that are declared here (2.2 and later), which
/// are not quite those of its manual. `tidemark_torch.py` sets them all. Thread-safety: any thread.
/// Exceptions pass through: PyTorch makes a RuntimeError of what is derived from `std::exception`. Functions
/// that PyTorch calls in destructors print a sentence instead.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

struct CUstream_st;

#define TIDEMARK_TORCH_API __attribute__((visibility("default")))

extern "C" {

// ---- for CUDAPluggableAllocator ---------------------------------------------------------------------------

/// `alloc`: a block for work of `stream`; null for 0 bytes. Never null otherwise, because PyTorch does not
/// look. @throws std::runtime_error with "CUDA out of memory." and numbers where there is no memory, or a
/// sentence for another error of the driver or the settings.
TIDEMARK_TORCH_API void* tidemark_torch_alloc(std::size_t bytes, int device, CUstream_st* stream);
/// `free`: later work of the stream that the block was allocated for may use it at once, and others after
/// the streams that were recorded.
TIDEMARK_TORCH_API void tidemark_torch_free(void* block, std::size_t bytes, int device,
                                            CUstream_st* stream) noexcept;
/// `set_record_stream_fn`: work on `stream` uses the block, too. Ignores memory of others, as PyTorch does.
TIDEMARK_TORCH_API void tidemark_torch_record_stream(void* block, CUstream_st* stream);
/// `set_reset_fn`, for `torch.cuda.empty_cache()`: returns what is kept and not used, of all devices.
TIDEMARK_TORCH_API void tidemark_torch_reset() noexcept;
/// `set_memory_fraction_fn`: no more than this part of the device is held.
TIDEMARK_TORCH_API void tidemark_torch_memory_fraction(double fraction, int device);
/// `set_base_alloc_fn`, before a tensor is sent to another process. @throws std::runtime_error always, with
/// the reason: the other process would map the wrong memory.
TIDEMARK_TORCH_API void* tidemark_torch_base_alloc(void* block, std::size_t* bytes);
/// `set_begin_allocate_to_pool`: what a graph captures on streams that `filter` takes is of this pool.
TIDEMARK_TORCH_API void tidemark_torch_begin_pool(int device,
                                                  std::pair<unsigned long long, unsigned long long> pool,
                                                  std::function<bool(CUstream_st*)> filter);
/// `set_end_allocate_to_pool_fn`.
TIDEMARK_TORCH_API void tidemark_torch_end_pool(int device,
                                                std::pair<unsigned long long, unsigned long long> pool);
/// `set_release_pool`: a graph of the pool has ended. The memory of the last one goes back with the next
/// `tidemark_torch_reset`, or when memory is short.
TIDEMARK_TORCH_API void tidemark_torch_release_pool(
    int device, std::pair<unsigned long long, unsigned long long> pool) noexcept;

/// The same as `alloc` for a `torch.cuda.MemPool`, before which PyTorch's own allocator stays: null where
/// there is no memory, because it checks for that, frees what it can, and raises its own error.
TIDEMARK_TORCH_API void* tidemark_torch_segment_alloc(std::size_t bytes, int device, CUstream_st* stream);
/// The same as `free`: waits for the device, as `cudaFree` does.
TIDEMARK_TORCH_API void tidemark_torch_segment_free(void* segment, std::size_t bytes, int device,
                                                    CUstream_st* stream) noexcept;

// ---- for tidemark_torch.py --------------------------------------------------------------------------------
// They return null, or a sentence that says what is wrong, which lives until the thread's next call.

/// What memory the process gets: null or a negative number leaves it to the environment.
TIDEMARK_TORCH_API char const* tidemark_torch_configure(char const* resource, long long max_cached_bytes,
                                                        char const* trace) noexcept;
/// Begins a step of a kind on all devices, and ends the one before.
TIDEMARK_TORCH_API char const* tidemark_torch_begin_step(long long kind) noexcept;
/// Ends the open step, if there is one.
TIDEMARK_TORCH_API char const* tidemark_torch_end_step() noexcept;
/// Completes the file of the trace.
TIDEMARK_TORCH_API char const* tidemark_torch_close_trace() noexcept;
/// Numbers of a device as a JSON object; "{}" where it has no memory yet. It lives as long as a sentence.
TIDEMARK_TORCH_API char const* tidemark_torch_stats(int device) noexcept;

}  // extern "C"
