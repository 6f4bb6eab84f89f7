// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/pool_options.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/size_classes.hpp>

namespace tidemark {

pool_options pool_options::tensor_classes() {
  return {.small_block_count = 16,
          .medium_block_count = 8,
          .max_cached_bytes = 16 * MiB,
          .keep_large_blocks = false,
          .size_classes = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
}

namespace detail {

std::pmr::pool_options standard_limits(std::pmr::pool_options const& wanted) noexcept {
  constexpr std::size_t default_largest = 16 * KiB, max_largest = 1 * MiB, max_blocks = std::size_t{1} << 16;
  const auto limited = [](std::size_t value, std::size_t if_none, std::size_t most) {
    return value == 0 ? if_none : std::min(value, most);
  };
  const std::size_t largest = limited(wanted.largest_required_pool_block, default_largest, max_largest);
  // The largest class must serve requests with the alignment of `new`.
  const auto serves = [=](std::size_t bytes) {
    return bytes >= largest && bytes % alignof(std::max_align_t) == 0;
  };
  const auto sizes = size_classes::default_sizes();
  const auto found = std::ranges::find_if(sizes, serves);
  return {.max_blocks_per_chunk = limited(wanted.max_blocks_per_chunk, max_blocks, max_blocks),
          .largest_required_pool_block = found != sizes.end() ? *found : std::bit_ceil(largest)};
}

size_classes standard_classes(std::size_t largest_bytes) {
  std::array<std::size_t, size_classes::max_count> sizes{};
  const auto is_larger = [=](std::size_t bytes) { return bytes > largest_bytes; };
  const auto of_default = size_classes::default_sizes();
  auto last =
      std::ranges::copy(of_default.begin(), std::ranges::find_if(of_default, is_larger), sizes.begin()).out;
  for (; *std::prev(last) < largest_bytes; ++last) *last = 2 * *std::prev(last);
  return {"pool", {sizes.begin(), last}};
}

pool_options standard_slabs(std::pmr::pool_options const& limits,
                            std::pmr::memory_resource* upstream) noexcept {
  return {
      .keep_large_blocks = false, .max_blocks_per_slab = limits.max_blocks_per_chunk, .upstream = upstream};
}

pool_options from_standard(std::pmr::pool_options const& standard) {
  const std::pmr::pool_options limits = standard_limits(standard);
  const size_classes classes = standard_classes(limits.largest_required_pool_block);
  pool_options options = standard_slabs(limits, nullptr);
  for (std::size_t i = 1; i < classes.count(); ++i) options.size_classes.push_back(classes.bytes(i));
  return options;
}

size_classes classes_of(pool_options const& options, std::size_t min_block_bytes) {
  return {options.name, options.size_classes, min_block_bytes};
}

pool_options completed(pool_options const& options, std::pmr::memory_resource* upstream,
                       size_classes const& classes) {
  pool_options result{options};
  result.upstream = or_default(upstream);
  result.name = name_or(options.name, pool_options{}.name);
  result.size_classes.clear();
  for (std::size_t i = 0; i < classes.count(); ++i) result.size_classes.push_back(classes.bytes(i));
  return result;
}

}  // namespace detail

}  // namespace tidemark
