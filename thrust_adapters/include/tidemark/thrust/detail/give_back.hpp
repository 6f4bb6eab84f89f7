// SPDX-License-Identifier: Apache-2.0
/// @file
/// `give_back`: what adapters do where an exception would end the program. Owns nothing.
#pragma once

#include <cstddef>

#include <tidemark/warning.hpp>

namespace tidemark::detail {

/// Gives a block back to `resource`. If that throws, which those of tidemark do not, the block is lost: a
/// warning (`refused_return`) in the name of `adapter`.
template <class R>
void give_back(R& resource, void* block, std::size_t bytes, std::size_t align, char const* adapter) noexcept {
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
