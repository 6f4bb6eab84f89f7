// SPDX-License-Identifier: Apache-2.0
// What pool and synchronized_pool do alike when they are made.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/detail/size_classes.hpp>
#include <tidemark/detail/slab_store.hpp>
#include <tidemark/pool_options.hpp>

namespace tidemark::detail {

/// What the standard's options say, as far as they say something.
[[nodiscard]] pool_options from_standard(std::pmr::pool_options const& standard);

/// `options` with what is to be found out filled in: the upstream and the sizes of classes.
[[nodiscard]] pool_options completed(pool_options const& options, size_classes const& classes,
                                     std::pmr::memory_resource* upstream);

/// Takes the blocks from the upstream that the options want at the start, as far as `bytes_max` lets it.
/// @return bytes.
[[nodiscard]] std::size_t preallocate(slab_store& store, size_classes const& classes,
                                      pool_options const& options, std::size_t bytes_max);

}  // namespace tidemark::detail
