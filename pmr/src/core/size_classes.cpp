// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/size_classes.hpp>

#include <bit>
#include <stdexcept>
#include <string>

#include <tidemark/core/detail/request.hpp>

namespace tidemark::detail {
namespace {

constexpr auto sizes_by_default = [] {
  constexpr std::size_t step_bytes = 8, linear_bytes = 64, largest_bytes = 16 * KiB, steps = 8;
  std::array<std::size_t,
             linear_bytes / step_bytes + steps * std::bit_width(largest_bytes / linear_bytes) - steps>
      sizes{};
  std::size_t count = 0;
  for (std::size_t bytes = step_bytes; bytes <= linear_bytes; bytes += step_bytes) sizes[count++] = bytes;
  for (std::size_t from = linear_bytes; from < largest_bytes; from *= 2) {
    for (std::size_t step = 1; step <= steps; ++step) sizes[count++] = from + from / steps * step;
  }
  return sizes;
}();
static_assert(sizes_by_default.front() == 8 && sizes_by_default.back() == 16 * KiB);

[[noreturn]] void refuse(char const* pool, std::string const& what) {
  throw std::invalid_argument("pool '" + std::string{name_or(pool, "pool")} + "': " + what);
}

}  // namespace

std::span<std::size_t const> size_classes::default_sizes() noexcept { return sizes_by_default; }

size_classes::size_classes(char const* pool, std::span<std::size_t const> sizes,
                           std::size_t min_block_bytes) {
  if (sizes.empty()) {
    // Made once, because a short-lived pool should not spend microseconds on its classes.
    static const size_classes of_one_word{"", default_sizes()};
    static const size_classes of_two_words{"", default_sizes().subspan(1)};
    *this = min_block_bytes <= granule_bytes ? of_one_word : of_two_words;
    return;
  }
  if (sizes.size() > max_count) {
    refuse(pool, std::to_string(sizes.size()) + " size classes were requested; the maximum is " +
                     std::to_string(max_count));
  }
  for (const std::size_t size : sizes) {
    if (size < min_block_bytes || size > max_block_bytes || size % granule_bytes != 0) {
      refuse(pool, "a size class of " + std::to_string(size) +
                       " bytes was requested; sizes are multiples of 8 from " +
                       std::to_string(min_block_bytes) + " bytes to 1 GiB");
    }
    if (count_ > 0 && size <= bytes_[count_ - 1]) {
      refuse(pool, "size classes must increase, but " + std::to_string(size) + " bytes follow " +
                       std::to_string(bytes_[count_ - 1]));
    }
    bytes_[count_++] = size;
  }
  fill_table();
}

// Ends the table at the last class with the alignment of `new`, if any. The default alignment is then on the
// fast path.
void size_classes::fill_table() noexcept {
  constexpr std::size_t alignment_of_new = 16;
  std::size_t last = count_ - 1;
  while (last > 0 && alignment(last) < alignment_of_new) --last;
  if (alignment(last) < alignment_of_new) last = count_ - 1;
  fast_alignment_ = std::min(alignment(last), alignment_of_new);
  const std::size_t entries = std::min(bytes_[last], max_table_bytes) / granule_bytes;
  table_end_ = entries * granule_bytes;
  std::size_t least = 0;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t bytes = (i + 1) * granule_bytes;
    while (bytes_[least] < bytes) ++least;
    std::size_t index = least;
    while (alignment(index) < std::min(alignment_of(bytes), fast_alignment_)) ++index;
    table_[i] = static_cast<std::uint8_t>(index);
  }
  // Extends the fast path to larger alignments that need no larger blocks.
  const auto serves = [&](std::size_t align) {
    for (std::size_t bytes = align; bytes <= table_end_; bytes += align) {
      if (alignment(table_[bytes / granule_bytes - 1]) < align) return false;
    }
    return true;
  };
  if (fast_alignment_ < alignment_of_new) return;
  while (fast_alignment_ < max_alignment && serves(2 * fast_alignment_)) fast_alignment_ *= 2;
}

std::size_t size_classes::index_of(std::size_t bytes, std::size_t align) const noexcept {
  if (align > max_alignment || bytes > largest_bytes()) return none;
  const std::size_t last = last_offset(bytes, align);
  if (last < table_end_ && align <= fast_alignment_) return index_at(last);
  const std::span sizes = std::span{bytes_}.first(count_);
  auto index = static_cast<std::size_t>(std::ranges::lower_bound(sizes, bytes) - sizes.begin());
  while (index < count_ && alignment(index) < align) ++index;
  return index < count_ ? index : none;
}

}  // namespace tidemark::detail
