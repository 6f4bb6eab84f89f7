// SPDX-License-Identifier: Apache-2.0
/// @file
/// `deallocate_or_warn`: deallocation without exceptions. Owns nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

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
