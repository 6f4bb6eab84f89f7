// SPDX-License-Identifier: Apache-2.0
/// @file
/// Giving back memory of a workspace: when a slot is too large, and what was given back.
#pragma once

#include <cstddef>

#include <tidemark/units.hpp>

namespace tidemark {

/// What `trim` gave back.
struct trim_summary {
  std::size_t slots = 0;  ///< slots that are gone
  std::size_t bytes = 0;  ///< given back to the upstream
};

/// When a slot is larger than it need be.
struct compact_options {
  double factor = 10.0;               ///< if it is so many times as large as what was asked of it lately …
  std::size_t least_bytes = 1 * MiB;  ///< … and so much would be given back,
  double headroom = 1.5;              ///< it shrinks to so many times what was asked of it, rounded up
};

/// What `compact` did.
struct compact_summary {
  std::size_t slots = 0;   ///< slots that shrank
  std::size_t bytes = 0;   ///< given back to the upstream, less what the smaller ones take
  std::size_t in_use = 0;  ///< slots that are too large, and stay because they are handed out
  std::size_t failed = 0;  ///< slots that stay because the upstream had no memory for a smaller one
};

}  // namespace tidemark
