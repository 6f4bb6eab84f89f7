// SPDX-License-Identifier: Apache-2.0
/// @file
/// Interface between a watched `operator new` and the scopes of `expect_resource`. Owns nothing.
#pragma once

#include <cstddef>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

class missed_blocks;

/// The calling thread's innermost open scope, or null.
extern constinit thread_local missed_blocks* innermost_scope;

/// Counts a block of `operator new` in the open scopes. @param caller return address of `operator new`
TIDEMARK_COLD void on_operator_new(std::size_t bytes, void const* caller) noexcept;

}  // namespace tidemark::detail
