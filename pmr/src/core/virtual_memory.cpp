// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/virtual_memory.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/live_frames.hpp>

namespace tidemark {

virtual_memory::virtual_memory(virtual_memory_options options, os_memory& os) noexcept
    : os_{&os},
      options_{options},
      granularity_{options.huge_pages == huge_page_policy::advise ? range_alignment : os.page_size()} {}

byte_range virtual_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) noexcept {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  const std::size_t rounded = detail::align_up(bytes, granularity_);
  void* first = os_->reserve(rounded, range_alignment);
  if (first == nullptr) return {};
  if (options_.huge_pages != huge_page_policy::system) {
    os_->advise_huge_pages(first, rounded, options_.huge_pages == huge_page_policy::advise);
  }
  return detail::without_stale_frames({reinterpret_cast<std::uintptr_t>(first), rounded});
}

bool virtual_memory::commit(byte_range part) noexcept {
  if (!os_->commit(part.data(), part.size)) return false;
  if (options_.prefault) os_->prefault(part.data(), part.size);
  return true;
}

bool virtual_memory::decommit(byte_range part) noexcept { return os_->decommit(part.data(), part.size); }

void virtual_memory::release(byte_range range) noexcept { os_->release(range.data(), range.size); }

}  // namespace tidemark
