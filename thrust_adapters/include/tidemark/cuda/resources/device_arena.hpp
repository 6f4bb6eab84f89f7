// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_arena`, `pinned_arena`, `managed_arena`: arenas on a device's memory and on memory shared with the
/// host. They own their memory.
///
/// A `device_arena` calls the driver only to grow or to return memory: a repeated step makes no call. `trim`,
/// `release`, `suspend`, the end of the arena, and a rewind that leaves chunks beyond `retain` wait for the
/// stream. Options for huge pages and prefaulting have no effect.
///
/// While the stream of a `device_arena` is capturing, the arena serves held memory and grows, and unmaps
/// nothing. The graph then contains addresses of the arena: do not trim, release or suspend the arena before
/// the graph has ended. If the driver does not map memory during captures, `out_of_memory` has this reason.
///
/// `suspend()` frees all memory and keeps addresses, marks and scopes; `resume()` maps memory again. While
/// the arena is suspended, `stats().committed_bytes` is 0 and `suspended_bytes` is the previous value.
/// Meanwhile allocation continues within `suspended_bytes`, rewinds and scopes work, and `trim` reduces
/// `suspended_bytes`.
#pragma once

#include <tidemark/arena/arena.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>

namespace tidemark {

/// An arena on the memory of a device, which the host must not access. It allocates addresses, but no
/// containers, zeroed arrays or destructors.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB, .name = "step"}, stream};
/// for (int i = 0; i < 1000; ++i) {
///   device_arena::scope scope{step};
///   float* x = scope.push_array<float>(n, uninitialized).data();
///   kernel<<<blocks, threads, 0, stream>>>(x, n);
/// }                                                     // the next iteration gets the same addresses
/// ```
/// All work that uses the memory is on the arena's stream. The stream runs it in order, and memory that a
/// rewind or a reset frees is reused without a wait. For work on another stream, `scope.end_after(event)`
/// makes later work wait for an event behind it. `scope.end_after(stream)` does so for the present work of a
/// stream, also within one capture.
///
/// `gpu::virtual_memory_options`, in place of `stream`, also set the devices with access and the export to
/// other processes.
using device_arena = basic_arena<gpu::virtual_memory>;

/// An arena on one block of pinned host memory.
using pinned_arena = basic_arena<gpu::pinned_memory>;

/// An arena on one block of managed memory.
using managed_arena = basic_arena<gpu::managed_memory>;

extern template class detail::arena_state<gpu::virtual_memory>;
extern template class detail::arena_state<gpu::device_memory>;
extern template class detail::arena_state<gpu::pinned_memory>;
extern template class detail::arena_state<gpu::managed_memory>;

}  // namespace tidemark
