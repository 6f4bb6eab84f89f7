// SPDX-License-Identifier: Apache-2.0
/// @file
/// `std_sync`: `std_atomics`, and the locks of production.
#pragma once

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// The policy of code that takes locks as well.
struct std_sync : std_atomics {
  using mutex = fork_safe<>;
};

}  // namespace tidemark::detail
