// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_planned_arena`: a planned arena in the memory of a `device_pool`.
#pragma once

#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

namespace tidemark {

/// A planned arena in the memory of its fallback, which is on a device. The host must not access the memory.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// device_planned_arena memory{{.fallback = &blocks, .name = "step"}};
/// for (batch const& b : batches) {
///   device_planned_arena::step step{memory, b.length};
///   train(b, memory, stream);                  // the first of a length is recorded, the others are planned
/// }
/// ```
/// A plan's memory is one block of the fallback, from the first request of a step to its end. The fallback
/// serves blocks that outlive their step, and requests that deviate from the plan. It therefore
/// holds the long-lived blocks, plus the larger of one plan and one unplanned step.
///
/// The stream of the fallback (`device_pool`, `device_cache`) orders the blocks: work that uses a block is on
/// this stream when the block is deallocated. A planned step makes no driver call once the fallback holds its
/// memory. For a step in a captured graph use a `device_pool` with `keeps_addresses`.
using device_planned_arena = basic_planned_arena<upstream_device_memory>;

extern template class basic_planned_arena<upstream_device_memory>;

}  // namespace tidemark
