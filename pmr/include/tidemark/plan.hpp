// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans: offsets for blocks of known lifetimes, and arenas that follow them.
#pragma once

#include <tidemark/plan/make_plan.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>
#include <tidemark/plan/replay/step_plan.hpp>
