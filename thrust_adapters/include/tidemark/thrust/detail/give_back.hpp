// SPDX-License-Identifier: Apache-2.0
/// @file
/// `give_back`, `require_countable`: what adapters do where an exception would end the program, and with
/// requests that are too large for anybody. Own nothing.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/out_of_memory.hpp>
#include <tidemark/warning.hpp>

namespace tidemark::detail {

/// Refuses more bytes than addresses can be apart. The resource may be one of the standard library, some of
/// which wrap around as they round such sizes up. @throws out_of_memory.
inline void require_countable(std::size_t bytes, std::size_t align, char const* adapter) {
  constexpr std::size_t bytes_max = std::numeric_limits<std::ptrdiff_t>::max();
  if (bytes <= bytes_max) return;
  throw out_of_memory{
      {.resource = adapter, .requested_bytes = bytes, .alignment = align, .largest_bytes = bytes_max}};
}

/// Gives a block back to `resource`; null is none. If that throws, which those of tidemark do not, the block
/// is lost: a warning (`refused_return`) in the name of `adapter`.
template <class R>
void give_back(R& resource, void* block, std::size_t bytes, std::size_t align, char const* adapter) noexcept {
  if (block == nullptr) return;
  if constexpr (noexcept(resource.deallocate(block, bytes, align))) {
    resource.deallocate(block, bytes, align);
  } else {
    try {
      resource.deallocate(block, bytes, align);
    } catch (...) {
      report_warning(warning_kind::refused_return, adapter,
                     "%s: its resource threw where %zu bytes were given back, which are lost until the "
                     "process ends",
                     adapter, bytes);
    }
  }
}

}  // namespace tidemark::detail
