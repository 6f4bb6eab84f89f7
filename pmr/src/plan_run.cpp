// SPDX-License-Identifier: Apache-2.0
#include "plan_run.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tidemark::detail::planning {
namespace {

// The clock is read after so many nodes, or so many steps: mostly some tens of microseconds. A node may take
// as many steps as there are blocks, and some steps place none, so that to count nodes is not enough.
constexpr std::uint64_t look_nodes = 256;
constexpr std::uint64_t look_steps = 1U << 14U;
constexpr std::chrono::milliseconds report_interval{5};

}  // namespace

search_run::search_run(problem const& asked, plan_options const& options)
    : asked_{&asked},
      options_{&options},
      proven_{asked.lower_bound},
      wanted_{std::max<granules>(asked.lower_bound, options.capacity / asked.granule_bytes)},
      next_look_{look_nodes},
      next_clock_{look_steps},
      begin_{asked.begin},
      reported_{begin_},
      stage_begin_{begin_} {}

void search_run::enter(char const* stage) {
  leave();
  const auto same = std::ranges::find_if(
      stages_, [&](plan_stage const& each) { return std::strcmp(each.name, stage) == 0; });
  stage_ = static_cast<std::size_t>(same - stages_.begin());
  if (same == stages_.end()) stages_.push_back({.name = stage});
}

void search_run::leave() {
  const clock::time_point now = clock::now();
  if (stage_ < stages_.size()) {
    plan_stage& left = stages_[stage_];
    left.height = best_.height == nowhere ? 0 : best_.height * asked_->granule_bytes;
    left.nodes += nodes_ - stage_begin_nodes_;
    left.elapsed += now - stage_begin_;
  }
  stage_begin_nodes_ = nodes_;
  stage_begin_ = now;
}

bool search_run::look() {
  if (limited_ && nodes_ >= options_->node_limit) cut_ = true;
  const clock::time_point now = clock::now();
  if (limited_ && now - begin_ >= options_->time_limit) cut_ = true;
  if (options_->on_progress && now - reported_ >= report_interval) report();
  next_look_ = nodes_ + look_nodes;
  next_clock_ = steps_ + look_steps;
  if (limited_) next_look_ = std::min(next_look_, std::max(options_->node_limit, nodes_ + 1));
  return !cut_;
}

void search_run::obey_limits() {
  limited_ = true;
  look();
}

bool search_run::offer(std::vector<granules> const& offsets, granules height) {
  if (height >= best_.height) return false;
  best_.offsets = offsets;
  best_.height = height;
  if (options_->on_progress) report();
  return true;
}

void search_run::prove(granules height) {
  proven_ = std::max(proven_, height);
  wanted_ = std::max(wanted_, proven_);
}

void search_run::report() {
  reported_ = clock::now();
  options_->on_progress({.stage = stages_[stage_].name,
                         .height = best_.height == nowhere ? 0 : best_.height * asked_->granule_bytes,
                         .lower_bound = asked_->lower_bound * asked_->granule_bytes,
                         .nodes = nodes_,
                         .elapsed = reported_ - begin_});
}

plan search_run::finish(std::size_t block_n) {
  leave();
  plan made{.offsets = std::vector<std::size_t>(block_n, 0),
            .height = best_.height * asked_->granule_bytes,
            .lower_bound = asked_->lower_bound * asked_->granule_bytes,
            .optimal = best_.height == proven_,
            .stages = std::move(stages_)};
  for (std::size_t i = 0; i < best_.offsets.size(); ++i)
    made.offsets[asked_->block_of[i]] = best_.offsets[i] * asked_->granule_bytes;
  return made;
}

}  // namespace tidemark::detail::planning
