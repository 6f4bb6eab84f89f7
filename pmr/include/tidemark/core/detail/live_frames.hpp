// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frames of coroutines that are alive: level 2 finds those whose memory is freed before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>

namespace tidemark::detail {

// One table for the process, by address, because a frame may lie in a pool that lies in an arena. Its records
// come from operator new, and are used again: frames that come and go allocate nothing. Any thread.

/// Allocates a frame's block and records it. @throws what the resource throws, or std::bad_alloc; nothing has
/// changed then.
[[nodiscard]] void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                                      std::source_location where);
/// Takes the record of a frame that is destroyed. @return false if there is none: its memory was freed
[[nodiscard]] bool forget_frame(void const* frame) noexcept;

/// This memory is freed: reports `violation_kind::frame_outlived` for each live frame in it, and forgets it.
/// O(log live frames) if there is none in it.
/// @param kind, resource what resource frees it, for the message: `arena 'step': …`
void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept;
/// The same for all live frames that came from this resource, which frees all its memory. O(live frames).
void report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                      char const* resource) noexcept;

}  // namespace tidemark::detail
