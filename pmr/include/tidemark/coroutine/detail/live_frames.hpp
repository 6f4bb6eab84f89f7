// SPDX-License-Identifier: Apache-2.0
/// @file
/// Records of the coroutine frames that are alive: at level 2 the records show frames whose memory is freed
/// before the frames are destroyed.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <source_location>

namespace tidemark::detail {

// One table for the process, by address, because a frame may lie in a pool that lies in an arena. The records
// come from operator new and are reused. Any thread.

// A resource that does not report the memory it frees, such as std::pmr::monotonic_buffer_resource, leaves
// stale records of the frames in it. The table drops a stale record when a new frame, an arena or a pool
// obtains the memory.

/// Allocates a frame's block and records it. @throws what the resource throws, or std::bad_alloc; nothing has
/// changed then.
[[nodiscard]] void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                                      std::source_location where);
/// Removes the record of a frame that is destroyed. @return false if there is no record: its memory was freed
[[nodiscard]] bool forget_frame(void const* frame) noexcept;

}  // namespace tidemark::detail
