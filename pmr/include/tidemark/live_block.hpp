// SPDX-License-Identifier: Apache-2.0
/// @file
/// `live_block`: a block that a resource has handed out and not got back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace tidemark {

/// What `leaks()` of `tracking_resource` and `test_resource` tell of a block.
struct live_block {
  void const* address = nullptr;  ///< where it begins
  std::size_t bytes = 0;          ///< as asked for
  std::size_t align = 0;          ///< as asked for
  std::source_location site;      ///< where it was asked for; `line() == 0` where nobody said
  char const* label = "";         ///< what it was asked for; empty where nobody said
  std::uint64_t number = 0;       ///< it was the resource's n-th request, from 1, refused ones included
};

}  // namespace tidemark
