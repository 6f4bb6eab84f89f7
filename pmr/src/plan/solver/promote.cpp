// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Many buffers".
// The stage of make_plan that places the buffers again and again that come too high, earlier each time.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "skyline_layout.hpp"
#include "stages.hpp"

namespace tidemark::detail::planning {
namespace {

/// After each layout the buffers that end above the target are moved ahead in the order, some more than
/// others: the next layout places them earlier, where there is a choice. (D. Joslin and D. Clements, "Squeaky
/// Wheel Optimization", JAIR 10, 1999.)
class promoter {
 public:
  explicit promoter(solver_context& context)
      : context_{&context}, layout_{context}, random_{context.seed()} {}

  /// Begins with another order each time.
  void promote(std::uint64_t nodes) {
    static constexpr std::array orders{aspect::area, aspect::duration, aspect::size};
    problem const& instance = context_->instance();
    const auto by = static_cast<std::size_t>(orders[slice_++ % orders.size()]);
    std::vector<double> keys;
    for (buffer const& each : instance.buffers) keys.push_back(aspects_of(each)[by]);
    const std::uint64_t end = context_->nodes() + nodes;
    while (!context_->done() && context_->nodes() < end) {
      const order next = numbers_by(keys.size(), [&](std::uint32_t i) { return keys[i]; }, std::greater{});
      if (!layout_.place(next, no_offset)) return;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (layout_.offsets()[i] + instance.buffers[i].size > context_->target())
          keys[i] *= 1 + static_cast<double>(random_() % 1024) / 1024;
      }
    }
  }

 private:
  solver_context* context_;
  skyline_layout layout_;
  std::mt19937_64 random_;
  std::size_t slice_ = 0;
};

}  // namespace

endless_stage promote_high_ones(solver_context& context) {
  if (!skyline_layout::is_for(context.instance())) return {};
  return [stage = std::make_shared<promoter>(context)](std::uint64_t nodes) { stage->promote(nodes); };
}

}  // namespace tidemark::detail::planning
