// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans: where the blocks of a step that repeats lie, so that it needs the least memory there is.
module;

#include <tidemark/plan.hpp>

export module tidemark.plan;

export import tidemark.core;

export namespace tidemark {

// Plans
using tidemark::default_plan_alignment;
using tidemark::lifetime;
using tidemark::make_plan;
using tidemark::memory_plan;
using tidemark::plan_block;
using tidemark::plan_conflict;
using tidemark::require_valid;

// Steps that run by them
using tidemark::basic_planned_arena;
using tidemark::load_step_plan;
using tidemark::planned_arena;
using tidemark::planned_arena_options;
using tidemark::planned_arena_stats;
using tidemark::planned_block;
using tidemark::save_plan;
using tidemark::step_plan;

}  // namespace tidemark
