// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of coroutine frames whose memory is freed. Resources call these functions at level 2; the part
/// `coroutine`, which tracks live frames, implements them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Reports `violation_kind::frame_outlived` for each live frame in memory that is freed, and forgets the frame.
/// A frame that extends beyond `last` does not count. O(log live frames) if the memory holds no frame.
/// Thread-safe, as all functions here. @param kind, resource the freeing resource, for the message: `arena
/// 'step': …`
void report_frames_in(std::uintptr_t first, std::uintptr_t last, char const* kind,
                      char const* resource) noexcept;
/// Reports all frames of a resource that frees all its memory. O(live frames). @return the number of frames
/// reported
std::size_t report_frames_of(std::pmr::memory_resource const& memory, char const* kind,
                             char const* resource) noexcept;
/// Forgets stale records in memory that a resource has obtained.
void untrack_frames_in(std::uintptr_t first, std::uintptr_t last) noexcept;
/// Forgets stale records of an earlier resource at this address. Called at construction.
void untrack_frames_of(std::pmr::memory_resource const& memory) noexcept;
/// The range that an address space passes to its arena, without stale records.
[[nodiscard]] inline byte_range without_stale_frames(byte_range range) noexcept {
  if constexpr (check_level >= 2) untrack_frames_in(range.begin, range.end());
  return range;
}

}  // namespace tidemark::detail
