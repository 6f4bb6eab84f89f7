// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Promotion".
// Repeats skyline layouts. Buffers are ordered by the sum of the weights of their sections. A section in
// which a buffer ended too high weighs more in the next layout, so that its buffers are placed earlier. After
// eight layouts the weights restart with another power of the loads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "skyline_layout.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

/// Orders buffers by the sum of the weights of their sections. A weight starts as a power of the load. After
/// each layout, sections with buffers above the target get more weight. (D. Joslin and D. Clements, "Squeaky
/// Wheel Optimization", JAIR 10, 1999.)
class promoter {
 public:
  explicit promoter(solver_context& context)
      : context_{&context},
        layout_{context},
        random_{context.seed()},
        weights_(context.instance().section_count),
        keys_(context.instance().buffers.size()) {}

  void promote(std::uint64_t nodes) {
    // Each round restarts the weights.
    constexpr std::size_t layouts_of_a_round = 8;
    constexpr std::size_t max_tried = 16;  // in the place of one: docs/decisions/0052-large-steps.md
    const std::uint64_t end = context_->nodes() + nodes;
    while (!context_->done() && context_->nodes() < end) {
      if (layouts_++ % layouts_of_a_round == 0) begin_round();
      find_keys();
      const order next = numbers_by(keys_.size(), [&](std::uint32_t i) { return keys_[i]; }, std::greater{});
      if (!layout_.place_over_fullest(next, max_tried)) return;
      add_weight();
    }
  }

 private:
  void begin_round() {
    // The exponent is 32 in the first round, then a power of two from 4 to 64.
    const std::uint64_t doublings = layouts_ == 1 ? 5 : 2 + random_() % 5;
    growth_ = static_cast<double>(std::uint64_t{8} << random_() % 4);
    problem const& instance = context_->instance();
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      weights_[s] =
          static_cast<double>(instance.section_loads[s]) / static_cast<double>(instance.lower_bound);
      for (std::uint64_t k = 0; k < doublings; ++k) weights_[s] *= weights_[s];
    }
  }

  void find_keys() {
    std::vector<double> sums(weights_.size() + 1);
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin() + 1);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      section_range const& sections = context_->instance().buffers[i].lifespan;
      keys_[i] = sums[sections.end] - sums[sections.begin];
    }
  }

  /// Increases the weight of each section by its bytes above the target.
  void add_weight() {
    problem const& instance = context_->instance();
    std::vector<double> high(weights_.size() + 1);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      buffer const& each = instance.buffers[i];
      const offset_type end = layout_.offsets()[i] + each.size;
      if (end <= context_->target()) continue;
      const auto bytes = static_cast<double>(std::min(each.size, end - context_->target()));
      high[each.lifespan.begin] += bytes;
      high[each.lifespan.end] -= bytes;
    }
    double here = 0;
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      here += high[s];
      weights_[s] *=
          std::min(2.0, 1 + growth_ * std::max(here, 0.0) / static_cast<double>(instance.lower_bound));
    }
  }

  solver_context* context_;
  skyline_layout layout_;
  std::mt19937_64 random_;
  std::vector<double> weights_;  // by section
  double growth_ = 0;
  std::vector<double> keys_;  // by buffer
  std::size_t layouts_ = 0;
};

}  // namespace

endless_stage promote_high_ones(solver_context& context) {
  return [stage = std::make_shared<promoter>(context)](std::uint64_t nodes) { stage->promote(nodes); };
}

}  // namespace tidemark::planner::detail
