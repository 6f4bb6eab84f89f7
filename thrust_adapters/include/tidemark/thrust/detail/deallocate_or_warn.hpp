// SPDX-License-Identifier: Apache-2.0
/// @file
/// `deallocate_or_warn`, `require_countable`: deallocation without exceptions, a check of sizes. Own nothing.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Rejects more than PTRDIFF_MAX bytes, because some resources of the standard library overflow when they
/// round such sizes up. @throws out_of_memory.
inline void require_countable(std::size_t bytes, std::size_t align, char const* adapter) {
  constexpr std::size_t max_bytes = std::numeric_limits<std::ptrdiff_t>::max();
  if (bytes <= max_bytes) return;
  throw out_of_memory{
      {.resource = adapter, .requested_bytes = bytes, .alignment = align, .largest_bytes = max_bytes}};
}

/// Deallocates a block. Null: nothing happens. If `resource` throws, which those of tidemark do not, the
/// block is lost: a warning (`refused_return`) with the name of `adapter`.
template <class R>
void deallocate_or_warn(R& resource, void* block, std::size_t bytes, std::size_t align,
                        char const* adapter) noexcept {
  if (block == nullptr) return;
  try {
    resource.deallocate(block, bytes, align);
  } catch (...) {
    report_warning(warning_kind::refused_return, adapter,
                   "%s: its resource threw in deallocate: %zu bytes are lost until the process ends", adapter,
                   bytes);
  }
}

}  // namespace tidemark::detail
