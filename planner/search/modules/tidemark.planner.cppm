// SPDX-License-Identifier: Apache-2.0
/// @file
/// The planner: searches for lower plans than the plans of `make_plan`.
module;

#include <tidemark/planner.hpp>

export module tidemark.planner;

export import tidemark.plan;

export namespace tidemark::planner {

using tidemark::planner::find_plan;
using tidemark::planner::improve;
using tidemark::planner::options;
using tidemark::planner::plan_block;
using tidemark::planner::plan_conflict;
using tidemark::planner::progress;
using tidemark::planner::result;
using tidemark::planner::stage;

}  // namespace tidemark::planner
