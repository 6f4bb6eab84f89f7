// SPDX-License-Identifier: Apache-2.0
/// @file `picture_of`: a plan, drawn.
#pragma once

#include <string>

#include <tidemark/plan/memory_plan.hpp>

#include "plan_file.hpp"

namespace tidemark::tools {

/// An SVG document: time goes across, addresses up, each block is a rectangle, and the lower bound a line.
///
/// The time axis has one step for each moment at which a block begins or ends: lifetimes count in nanoseconds
/// as well as in events, and a stretch in which nothing happens would leave no room for those in which much
/// does. Nothing else in the document is a `rect`.
[[nodiscard]] std::string picture_of(plan_file const& file, memory_plan const& made,
                                     std::string const& title);

}  // namespace tidemark::tools
