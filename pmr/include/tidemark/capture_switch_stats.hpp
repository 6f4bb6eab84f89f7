// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch_stats`: what went through a capture switch, in numbers.
#pragma once

#include <cstddef>

#include <tidemark/resource_stats.hpp>

namespace tidemark {

/// A snapshot of a capture switch, of graph arenas and upstream together. Bytes are as asked for.
struct capture_switch_stats : resource_stats {
  std::size_t deferred_blocks = 0;  ///< given back to it, and not yet by it to the upstream
  std::size_t frozen_threads = 0;   ///< threads in a capture
};

}  // namespace tidemark
