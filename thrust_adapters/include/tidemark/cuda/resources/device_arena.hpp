// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_arena`, `pinned_arena`, `managed_arena`: arenas on a device's memory and on memory that it shares
/// with the host. They own their memory.
#pragma once

#include <tidemark/arena/arena.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>

namespace tidemark {

/// An arena on the memory of a device, which the host must not touch: it allocates addresses, but no
/// containers, zeroed arrays or destructors.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB, .name = "step"}, stream};
/// for (int i = 0; i < 1000; ++i) {
///   device_arena::scope scope{step};
///   float* x = step.push_array<float>(n, uninitialized).data();
///   kernel<<<blocks, threads, 0, stream>>>(x, n);
/// }                                                     // the next iteration gets the same addresses
/// ```
/// One resource, one stream. All work that uses the memory is on the arena's stream: it is done in order, so
/// that what a rewind or a reset frees can be allocated again without a wait. For work on another stream,
/// `scope.end_after(event)` makes later work wait for an event behind it, and `scope.end_after(stream)` for
/// what is on that stream, in a capture of both too.
///
/// The driver is called when the arena grows or returns memory, not to allocate what it holds, to rewind
/// or to reset: a step that repeats makes no call. `trim`, `release`, `suspend` and the end of the arena wait
/// for the stream first; so does a rewind that leaves chunks beyond `retain`.
///
/// While the stream is capturing the arena serves what it holds, and grows. The graph then contains addresses
/// of the arena: do not trim, release or suspend the arena before the graph has ended. Nothing is unmapped
/// during the capture. If the driver does not map memory during captures, `out_of_memory` says so.
///
/// `suspend()` frees all memory and keeps addresses, marks and scopes; `resume()` puts memory
/// behind them again. Meanwhile `stats().committed_bytes` is 0, and `suspended_bytes` what it was; allocation
/// goes on within that, rewinds and scopes work, and `trim` makes it less.
///
/// `gpu::virtual_memory_options`, in place of `stream`, set more than the stream: other devices that may use
/// the memory, and how it is exported to other processes (`space().export_memory(block)`). Options for huge
/// pages and prefaulting have no effect.
using device_arena = basic_arena<gpu::virtual_memory>;

/// An arena on pinned memory of the host, one block of it.
using pinned_arena = basic_arena<gpu::pinned_memory>;

/// An arena on managed memory, one block of it.
using managed_arena = basic_arena<gpu::managed_memory>;

extern template class detail::arena_state<gpu::virtual_memory>;
extern template class detail::arena_state<gpu::device_memory>;
extern template class detail::arena_state<gpu::pinned_memory>;
extern template class detail::arena_state<gpu::managed_memory>;

}  // namespace tidemark
