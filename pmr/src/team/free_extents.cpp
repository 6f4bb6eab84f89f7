// SPDX-License-Identifier: Apache-2.0
#include <tidemark/team/detail/free_extents.hpp>

#include <algorithm>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

std::size_t free_extents::largest_bytes() const noexcept {
  return ranges_.empty() ? 0 : std::ranges::max(ranges_, {}, &byte_range::size).size;
}

void free_extents::reserve(std::size_t more) {
  const std::size_t room = ranges_.size() + more;
  if (room > ranges_.capacity()) ranges_.reserve(2 * room);
}

byte_range free_extents::claim(std::size_t least, std::size_t wanted) noexcept {
  const auto found = std::ranges::find_if(ranges_, [=](byte_range each) { return each.size >= least; });
  if (found == ranges_.end()) return {};
  const byte_range claimed{found->begin, align_up(std::min(found->size, wanted), page_bytes)};
  cut(found, claimed);
  return claimed;
}

byte_range free_extents::claim_below(std::uintptr_t end, std::uintptr_t least) noexcept {
  auto above = std::ranges::lower_bound(ranges_, end, {}, &byte_range::begin);
  if (above == ranges_.begin() || (--above)->end() < end) return {};
  const std::uintptr_t begin = std::max(above->begin, least);
  const byte_range claimed{begin, end - begin};
  cut(above, claimed);
  return claimed;
}

void free_extents::add(byte_range range) noexcept {
  ranges_.push_back(range);
  bytes_ += range.size;
}

void free_extents::merge() noexcept {
  if (ranges_.empty()) return;
  std::ranges::sort(ranges_, {}, &byte_range::begin);
  auto kept = ranges_.begin();
  for (auto each = kept + 1; each != ranges_.end(); ++each) {
    if (kept->end() == each->begin) kept->size += each->size;
    else *++kept = *each;
  }
  ranges_.erase(kept + 1, ranges_.end());
}

void free_extents::clear() noexcept {
  ranges_.clear();
  bytes_ = 0;
}

// Removes a range from an extent that contains it.
void free_extents::cut(std::vector<byte_range>::iterator from, byte_range range) noexcept {
  bytes_ -= range.size;
  const byte_range before{from->begin, range.begin - from->begin};
  const byte_range behind{range.end(), from->end() - range.end()};
  if (before.empty() && behind.empty()) ranges_.erase(from);
  else *from = before.empty() ? behind : before;
  if (!before.empty() && !behind.empty()) ranges_.insert(from + 1, behind);
}

}  // namespace tidemark::detail
