// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans: where the blocks of a step that repeats lie, so that it needs the least memory there is.
module;

#include <tidemark/lifetime.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/plan_options.hpp>

export module tidemark.plan;

export namespace tidemark {

// Plans
using tidemark::conflict;
using tidemark::lifetime;
using tidemark::make_plan;
using tidemark::plan;
using tidemark::plan_block;
using tidemark::plan_options;
using tidemark::plan_progress;
using tidemark::plan_stage;

}  // namespace tidemark
