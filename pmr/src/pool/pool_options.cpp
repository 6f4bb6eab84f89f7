// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/pool_options.hpp>

#include <algorithm>
#include <cstddef>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/size_classes.hpp>

#include "../core/default_upstream.hpp"

namespace tidemark {

pool_options pool_options::tensor_classes() {
  return {.small_block_count = 16,
          .medium_block_count = 8,
          .max_cached_bytes = 16 * MiB,
          .keep_large_blocks = false,
          .size_classes = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
}

namespace detail {

pool_options from_standard(std::pmr::pool_options const& standard) {
  constexpr std::size_t default_largest = 16 * KiB, max_largest = 1 * MiB;
  const std::size_t wanted = standard.largest_required_pool_block;
  const std::size_t largest = std::min(wanted == 0 ? default_largest : wanted, max_largest);
  pool_options options{.keep_large_blocks = false, .max_blocks_per_slab = standard.max_blocks_per_chunk};
  for (const std::size_t bytes : size_classes::default_sizes().subspan(1)) {
    options.size_classes.push_back(bytes);
    // The last one serves what has the alignment of `new`, too.
    if (bytes >= largest && bytes % alignof(std::max_align_t) == 0) break;
  }
  while (options.size_classes.back() < largest)
    options.size_classes.push_back(2 * options.size_classes.back());
  return options;
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
