// SPDX-License-Identifier: Apache-2.0
/// @file
/// The frames of coroutines that are alive: level 2 finds those whose memory is freed before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

// One table for the process, by address, because a frame may lie in a pool that lies in an arena. Its records
// come from operator new, and are used again: frames that come and go allocate nothing. Any thread.

// A resource that does not report what it frees, such as std::pmr::monotonic_buffer_resource, leaves stale
// records of the frames in it. They are forgotten where others get the memory: a new frame, an arena, a
// pool.

/// Allocates a frame's block and records it. @throws what the resource throws, or std::bad_alloc; nothing has
/// changed then.
[[nodiscard]] void* allocate_recorded(std::pmr::memory_resource& memory, std::size_t bytes, std::size_t align,
                                      std::source_location where);
/// Takes the record of a frame that is destroyed. @return false if there is none: its memory was freed
[[nodiscard]] bool forget_frame(void const* frame) noexcept;

/// This memory is freed: reports `violation_kind::frame_outlived` for each live frame in it, and forgets it.
/// O(log live frames) if there is none in it. A frame that goes on behind `last` is not in it: its coroutine
/// has a buffer as a local.
/// @param kind, resource what resource frees it, for the message: `arena 'step': …`
void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept;
/// The same for all live frames that came from this resource, which frees all its memory. O(live frames).
std::size_t report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                             char const* resource) noexcept;

/// This memory comes to a resource, so that no frame is in it: forgets what is recorded there.
void forget_frames_in(std::uintptr_t first, std::uintptr_t last) noexcept;
/// The same for a resource that begins, at an address that others had.
void forget_frames_of(std::pmr::memory_resource const& memory) noexcept;
/// What an address space gives to its arena.
[[nodiscard]] inline byte_range without_stale_frames(byte_range range) noexcept {
  if constexpr (check_level >= 2) forget_frames_in(range.begin, range.end());
  return range;
}

}  // namespace tidemark::detail
