// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_arena`, `pinned_arena`, `managed_arena`: arenas on a device's memory and on memory that it shares
/// with the host. They own their memory.
#pragma once

#include <tidemark/arena.hpp>
#include <tidemark/cuda/block_memory.hpp>
#include <tidemark/cuda/virtual_memory.hpp>

namespace tidemark {

/// An arena on the memory of a device, which the host must not touch: it hands out addresses, and no
/// containers, zeroed arrays or destructors.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB, .name = "step"}, stream};
/// for (int i = 0; i < 1000; ++i) {
///   basic_arena_scope scope{step};
///   float* x = step.push_array<float>(n, uninitialized).data();
///   kernel<<<blocks, threads, 0, stream>>>(x, n);
/// }                                                     // the next turn gets the same addresses, at once
/// ```
/// One resource, one stream. All work that uses the memory is on the arena's stream: then it is done in the
/// order in which it was put there, and what a rewind or a reset takes back can be handed out again without a
/// wait, because its next use comes behind its last. Work on another stream that uses it ends behind an
/// event, and `scope.end_after(event)` orders what comes later behind that.
///
/// The driver is called when the arena grows or gives memory back, and never to allocate what it holds, to
/// rewind or to reset: a step that repeats makes no call. `trim`, `release`, `suspend` and the end of the
/// arena wait for the stream first; so does a rewind that leaves chunks beyond `retain`. While the stream is
/// capturing the arena serves what it holds and does not grow: `out_of_memory` says that a stream is
/// capturing.
///
/// `suspend()` gives all memory to others and keeps addresses, marks and scopes; `resume()` puts memory
/// behind them again. Meanwhile `stats().committed_bytes` is 0, and `suspended_bytes` what it was; allocation
/// goes on within that, rewinds and scopes work, and `trim` makes it less.
///
/// What the stream and the pieces of memory are is in `cuda::virtual_memory_options`, in place of `stream`.
/// Options for huge pages and prefaulting mean nothing here.
using device_arena = basic_arena<cuda::virtual_memory>;

/// An arena on pinned memory of the host, one block of it.
using pinned_arena = basic_arena<cuda::pinned_memory>;

/// An arena on managed memory, one block of it.
using managed_arena = basic_arena<cuda::managed_memory>;

extern template class basic_arena<cuda::virtual_memory>;
extern template class basic_arena<cuda::device_memory>;
extern template class basic_arena<cuda::pinned_memory>;
extern template class basic_arena<cuda::managed_memory>;

}  // namespace tidemark
