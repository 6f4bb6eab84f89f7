// SPDX-License-Identifier: Apache-2.0
/// @file `picture_of`: draws a plan.
#pragma once

#include <string>

#include <tidemark/plan/make_plan.hpp>

#include "plan_file.hpp"

namespace tidemark::tools {

/// Returns an SVG document with time across and addresses upwards. Each block is a rectangle, and the lower
/// bound is a line.
///
/// The time axis has one step for each moment at which a block begins or ends. Idle periods thus take no
/// space, whether lifetimes count nanoseconds or events. Only blocks are `rect` elements.
[[nodiscard]] std::string picture_of(plan_file const& file, memory_plan const& made,
                                     std::string const& title);

}  // namespace tidemark::tools
