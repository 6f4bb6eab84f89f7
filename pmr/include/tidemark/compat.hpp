// SPDX-License-Identifier: Apache-2.0
/// @file
/// All of `tidemark::compat`: resources with exactly the interface and the rules of the standard's.
///
/// A program changes to them by a `using`, and to `pool`, `synchronized_pool` and `upstream_arena`, which do
/// more and differ in what their headers say, class by class when it likes.
///
/// ```cpp
/// namespace pmr = tidemark::compat;  // was: namespace pmr = std::pmr;
/// pmr::unsynchronized_pool_resource nodes{{.largest_required_pool_block = 256}, upstream};
/// ```
#pragma once

#include <tidemark/compat/monotonic_buffer_resource.hpp>
#include <tidemark/compat/synchronized_pool_resource.hpp>
#include <tidemark/compat/unsynchronized_pool_resource.hpp>
