// SPDX-License-Identifier: Apache-2.0
/// @file
/// `deallocate_or_warn`: deallocation without exceptions. Owns nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Deallocates a block. Does nothing for null. If `resource` throws, the block is lost, with a warning
/// (`refused_return`) that names `adapter`; tidemark's resources do not throw.
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
