// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Progress and limits".
// Counts nodes and steps by stage, keeps the lowest layout, reports progress, and converts the layout to a
// plan in bytes.
#include "solver_context.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tidemark::planner::detail {

layout layout_of(problem const& instance, memory_plan const& plan) {
  layout made{.offsets = {}, .height = 0};
  for (std::size_t i = 0; i < instance.buffers.size(); ++i) {
    made.offsets.push_back(plan.offsets[instance.block_of[i]] / instance.unit_bytes);
    made.height = std::max(made.height, made.offsets[i] + instance.buffers[i].size);
  }
  return made;
}

solver_context::solver_context(problem const& instance, layout start, planner::options const& options)
    : instance_{&instance},
      options_{&options},
      best_{std::move(start)},
      proven_bound_{instance.padded_bound},
      target_{std::max<offset_type>(options.capacity / instance.unit_bytes, instance.padded_bound)},
      begin_{instance.begin},
      reported_{begin_},
      stage_begin_{begin_} {
  enter_stage("start");
  nodes_ = best_.offsets.size();
  if (options.on_progress) report();
  check_limits();
}

void solver_context::enter_stage(char const* name) {
  end_stage();
  const auto same =
      std::ranges::find_if(stages_, [&](stage const& each) { return std::strcmp(each.name, name) == 0; });
  stage_ = static_cast<std::size_t>(same - stages_.begin());
  if (same == stages_.end()) stages_.push_back({.name = name});
}

void solver_context::end_stage() {
  const clock::time_point now = clock::now();
  if (stage_ < stages_.size()) {
    stage& left = stages_[stage_];
    left.height = best_height_bytes();
    left.nodes += nodes_ - stage_begin_nodes_;
    left.elapsed += now - stage_begin_;
  }
  stage_begin_nodes_ = nodes_;
  stage_begin_ = now;
}

bool solver_context::check_limits() {
  constexpr std::chrono::milliseconds report_interval{5};
  const clock::time_point now = clock::now();
  const bool stops = options_->stop != nullptr && options_->stop->load(std::memory_order_relaxed);
  cut_ = cut_ || stops || nodes_ >= options_->node_limit || now - begin_ >= options_->time_limit;
  if (options_->on_progress && now - reported_ >= report_interval) report();
  next_check_steps_ = cut_ ? 0 : steps_ + check_steps;
  return !cut_;
}

void solver_context::offer(std::vector<offset_type> const& offsets) {
  offset_type height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i)
    height = std::max(height, offsets[i] + instance_->buffers[i].size);
  if (height >= best_.height) return;
  best_ = {.offsets = offsets, .height = height};
  if (options_->on_progress) report();
}

void solver_context::raise_bound(offset_type height) {
  proven_bound_ = std::max(proven_bound_, height);
  target_ = std::max(target_, proven_bound_);
}

void solver_context::report() {
  reported_ = clock::now();
  options_->on_progress({.stage = stages_[stage_].name,
                         .height = best_height_bytes(),
                         .lower_bound = instance_->lower_bound * instance_->unit_bytes,
                         .nodes = nodes_,
                         .elapsed = reported_ - begin_,
                         .proven_bound = proven_bound_ * instance_->unit_bytes});
}

result solver_context::finish(std::size_t blocks) {
  end_stage();
  result made;
  made.offsets.assign(blocks, 0);
  made.height = best_height_bytes();
  made.lower_bound = instance_->lower_bound * instance_->unit_bytes;
  made.proven_bound = proven_bound_ * instance_->unit_bytes;
  made.stages = std::move(stages_);
  for (std::size_t i = 0; i < best_.offsets.size(); ++i)
    made.offsets[instance_->block_of[i]] = best_.offsets[i] * instance_->unit_bytes;
  return made;
}

}  // namespace tidemark::planner::detail
