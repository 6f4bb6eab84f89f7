// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_planned_arena`: a planned arena on the memory of a device. It owns the memory that it plans.
#pragma once

#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

namespace tidemark {

/// A planned arena on the memory of a device, which the host must not touch.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// device_planned_arena memory{{.fallback = &blocks, .name = "step"}, stream};
/// for (batch const& b : batches) {
///   device_planned_arena::step step{memory, b.length};
///   train(b, memory, stream);                  // the first of a length is recorded, the others are planned
/// }
/// ```
/// One resource, one stream, as for a `device_arena`: work that uses a block is on the arena's stream when
/// the block is deallocated, so that the next one in the same bytes comes behind it. The fallback must be
/// ordered by the same stream (`device_pool`, `device_cache`), and is always named.
///
/// The driver is called when a plan needs more memory than there is, and when one is given up, whose
/// memory is then unmapped after a wait for the stream; a step that runs by its plan makes no call. While
/// the stream is capturing the arena maps memory as ever, and unmaps none.
using device_planned_arena = basic_planned_arena<gpu::virtual_memory>;

extern template class basic_planned_arena<gpu::virtual_memory>;

}  // namespace tidemark
