// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/virtual_memory.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/frame_table.hpp>

#include "system_limits.hpp"

namespace tidemark {

virtual_memory::virtual_memory(virtual_memory_options options, os_memory& os) noexcept
    : os_{&os},
      options_{options},
      granularity_{options.huge_pages == huge_page_policy::advise ? range_alignment : os.page_size()} {}

byte_range virtual_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) noexcept {
  refused_ = {};
  if (std::max(least_bytes, wanted_bytes) >= std::numeric_limits<std::size_t>::max() / 2) return {};
  const std::size_t least = detail::align_up(std::max<std::size_t>(least_bytes, 1), granularity_);
  const byte_range range = detail::reserve_by_halves(
      least, wanted_bytes, [&](std::size_t bytes) { return reserve_exactly(bytes, bytes == least); },
      [&] { return detail::fair_share_bytes(refused_); });
  return range.empty() ? range : detail::without_stale_frames(range);
}

// A system that aligns a range briefly takes up to 2 MiB more. If that is refused, a small range and the last
// attempt go without the alignment.
byte_range virtual_memory::reserve_exactly(std::size_t bytes, bool is_last) noexcept {
  const std::size_t rounded = detail::align_up(bytes, granularity_);
  errno = 0;
  void* first = os_->reserve(rounded, range_alignment);
  if (first == nullptr && granularity_ < range_alignment && (is_last || rounded < range_alignment))
    first = os_->reserve(rounded, granularity_);
  if (first == nullptr) {
    refused_ = {errno, rounded, false};
    return {};
  }
  if (options_.huge_pages != huge_page_policy::automatic) {
    os_->advise_huge_pages(first, rounded, options_.huge_pages == huge_page_policy::advise);
  }
  return {reinterpret_cast<std::uintptr_t>(first), rounded};
}

std::size_t virtual_memory::commit(byte_range part, std::size_t least_bytes) noexcept {
  return detail::commit_at_least(part, least_bytes, [this](byte_range taken) {
    errno = 0;
    if (!os_->commit(taken.data(), taken.size)) {
      refused_ = {errno, taken.size, true};
      return false;
    }
    if (options_.huge_pages == huge_page_policy::automatic) detail::advise_huge_pages_if_large(taken, *os_);
    if (options_.prefault) os_->prefault(taken.data(), taken.size);
    return true;
  });
}

// Leaves out parts of a huge page, which later memory shares.
void detail::advise_huge_pages_if_large(byte_range memory, os_memory& os) noexcept {
  if (memory.size < virtual_memory::min_huge_commit_bytes) return;
  const std::uintptr_t first = align_up(memory.begin, virtual_memory::range_alignment);
  os.advise_huge_pages(reinterpret_cast<void*>(first),
                       align_down(memory.end(), virtual_memory::range_alignment) - first, true);
}

char const* virtual_memory::refusal() const noexcept { return detail::limit_behind(refused_); }

bool virtual_memory::decommit(byte_range part) noexcept { return os_->decommit(part.data(), part.size); }

void virtual_memory::release(byte_range range) noexcept { os_->release(range.data(), range.size); }

}  // namespace tidemark
