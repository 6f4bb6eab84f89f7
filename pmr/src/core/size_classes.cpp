// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/size_classes.hpp>

#include <stdexcept>
#include <string>

namespace tidemark::detail {
namespace {

constexpr std::array<std::size_t, 9> default_sizes{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

[[noreturn]] void refuse(char const* pool, std::string const& what) {
  throw std::invalid_argument("pool '" + std::string{pool} + "': " + what);
}

}  // namespace

size_classes::size_classes(char const* pool, std::span<std::size_t const> sizes) {
  if (sizes.empty()) sizes = default_sizes;
  if (sizes.size() > max_count) {
    refuse(pool, std::to_string(sizes.size()) + " size classes were requested; there can be " +
                     std::to_string(max_count));
  }
  for (const std::size_t size : sizes) {
    if (size < min_block_bytes || size > max_block_bytes || size % granule_bytes != 0) {
      refuse(pool, "a size class of " + std::to_string(size) +
                       " bytes was requested; sizes are multiples of 16 from 32 bytes to 1 GiB");
    }
    if (count_ > 0 && size <= bytes_[count_ - 1]) {
      refuse(pool, "the size class of " + std::to_string(size) + " bytes comes after that of " +
                       std::to_string(bytes_[count_ - 1]) + "; sizes must rise");
    }
    bytes_[count_++] = size;
  }
  for (std::size_t granules = 0; granules < table_.size(); ++granules) {
    table_[granules] = static_cast<std::uint8_t>(index_of(granules * granule_bytes, 1));
  }
}

std::size_t size_classes::common_alignment() const noexcept {
  std::size_t least = max_alignment;
  for (std::size_t i = 0; i < count_; ++i) least = std::min(least, alignment(i));
  return least;
}

std::size_t size_classes::index_of(std::size_t bytes, std::size_t align) const noexcept {
  if (align > max_alignment || bytes > largest_bytes()) return none;
  const std::span sizes = std::span{bytes_}.first(count_);
  auto index = static_cast<std::size_t>(std::ranges::lower_bound(sizes, bytes) - sizes.begin());
  while (index < count_ && alignment(index) < align) ++index;
  return index < count_ ? index : none;
}

}  // namespace tidemark::detail
