// SPDX-License-Identifier: Apache-2.0
#include "pool_setup.hpp"

#include <tidemark/units.hpp>

namespace tidemark::detail {
namespace {

// The tiers of pool_options.
constexpr std::size_t small_block_max = 1 * KiB;
constexpr std::size_t medium_block_max = 16 * KiB;

}  // namespace

pool_options from_standard(std::pmr::pool_options const& standard) {
  constexpr std::size_t largest_max = 1 * MiB;
  pool_options options{.small_block_count = 0,
                       .medium_block_count = 0,
                       .keep_large_blocks = false,
                       .max_blocks_per_slab = standard.max_blocks_per_chunk};
  const std::size_t largest =
      standard.largest_required_pool_block == 0 ? medium_block_max : standard.largest_required_pool_block;
  std::size_t bytes = 64;
  options.bucket_bytes.push_back(bytes);
  while (bytes < largest && bytes < largest_max) options.bucket_bytes.push_back(bytes *= 2);
  return options;
}

pool_options completed(pool_options const& options, size_classes const& classes,
                       std::pmr::memory_resource* upstream) {
  pool_options result{options};
  result.upstream = upstream;
  result.bucket_bytes.clear();
  for (std::size_t i = 0; i < classes.count(); ++i) result.bucket_bytes.push_back(classes.bytes(i));
  return result;
}

std::size_t preallocate(slab_store& store, size_classes const& classes, pool_options const& options,
                        std::size_t bytes_max) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < classes.count(); ++i) {
    const std::size_t block_bytes = classes.bytes(i);
    const std::size_t blocks = block_bytes <= small_block_max    ? options.small_block_count
                               : block_bytes <= medium_block_max ? options.medium_block_count
                                                                 : 0;
    if (blocks > 0 && block_bytes <= bytes_max - taken) taken += store.add_slab(i, blocks, bytes_max - taken);
  }
  return taken;
}

}  // namespace tidemark::detail
