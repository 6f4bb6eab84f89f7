// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans: offsets for the blocks of a repeated step that keep its memory small, and arenas that follow them.
export module tidemark.plan;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Plans
using tidemark::default_plan_alignment;
using tidemark::lifetime;
using tidemark::make_plan;
using tidemark::memory_plan;
using tidemark::require_valid;

// Steps that follow plans
using tidemark::basic_planned_arena;
using tidemark::load_step_plan;
using tidemark::planned_arena;
using tidemark::planned_arena_options;
using tidemark::planned_arena_stats;
using tidemark::planned_block;
using tidemark::save_plan;
using tidemark::step_plan;

}  // namespace tidemark
