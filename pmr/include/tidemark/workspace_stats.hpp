// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a workspace holds, in numbers.
#pragma once

#include <cstddef>

namespace tidemark {

/// A snapshot of the slots of one element type.
///
/// `active_slots <= slots`, `used_bytes <= held_bytes`.
struct workspace_type_stats {
  char const* element = "";      ///< the element's name: "float64", "bits", or that of the C++ type
  std::size_t slots = 0;         ///< pieces of memory there are
  std::size_t active_slots = 0;  ///< of them, those handed out now
  std::size_t elements = 0;      ///< handed out now; of "bits", 64 for each word begun
  std::size_t used_bytes = 0;    ///< handed out now
  std::size_t held_bytes = 0;    ///< in slots, handed out or not
};

/// A snapshot of a workspace: the sums over its types, and what belongs to none.
struct workspace_stats {
  char const* name = "";         ///< the workspace's name
  std::size_t types = 0;         ///< element types with slots
  std::size_t slots = 0;         ///< pieces of memory there are
  std::size_t active_slots = 0;  ///< of them, those handed out now
  std::size_t elements = 0;      ///< handed out now
  std::size_t used_bytes = 0;    ///< handed out now
  std::size_t held_bytes = 0;    ///< taken from the upstream and not given back: in slots, handed out or not
  std::size_t tensor_headers = 0;  ///< headers kept for `acquire_tensor`
  std::size_t depth = 0;           ///< scopes and checkpoints open
  std::size_t saved_counts = 0;    ///< that these will restore: one for each type they used
};

}  // namespace tidemark
