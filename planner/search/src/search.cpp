// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Restarts and heights".
// The stage that searches for layouts of given heights. A turn tries each height in several ways, each with a
// node budget: along the skyline in six orders, along time, along the skyline in random orders, and by rising
// offset for few buffers. For few buffers the turn also searches two heights by pairs. Run times of the ways
// differ from milliseconds to hours on one problem, so each turn tries all ways and the next turn doubles the
// budget. A layout lowers the next height. A refuted height raises the bound.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "exact_search.hpp"
#include "pair_search.hpp"
#include "search_buffers.hpp"
#include "stages.hpp"
#include "time_search.hpp"

namespace tidemark::planner::detail {
namespace {

// The orders of the MiniMalloc paper, and two orders by size and by area.
using enum aspect;
constexpr std::array<aspects, 6> orders{{{load, duration, area},
                                         {load, area, duration},
                                         {load, size, duration},
                                         {duration, load, area},
                                         {size, duration, load},
                                         {area, duration, load}}};

/// Searches at several heights, in several ways at each height.
class prober {
 public:
  explicit prober(solver_context& context)
      : context_{&context}, exact_{context}, time_{context}, pairs_{context}, random_{context.seed()} {}

  /// Tries the bound first, because the bound is cheapest to refute. Then tries the target. Then tries a
  /// ladder of heights between the target and the best plan with a smaller budget: the first rung is half
  /// way, and each further rung halves the distance to the best plan.
  void probe(std::uint64_t nodes) {
    if (!std::exchange(has_raised_bound_, true)) raise_bound();
    try_each_way(nodes, [&] { return context_->proven_bound(); });
    if (context_->target() > context_->proven_bound())
      try_each_way(nodes, [&] { return context_->target(); });
    for (unsigned rung = 1; rung <= rungs && !context_->done(); ++rung) {
      try_each_way(nodes / 32, [&] {
        const offset_type below = context_->best().height - 1;
        return below - (below - context_->target()) / (offset_type{1} << rung);
      });
    }
    if (pair_search::is_for(context_->instance())) try_pairs(nodes / buffers_of_a_case);
  }

 private:
  // The search by rising offset decides small problems with mixed alignments soonest. For larger problems the
  // other ways use the time better.
  static constexpr std::size_t max_rising_buffers = 128;
  static constexpr std::size_t rising_orders = 3;  // the first orders of `orders`, which begin with the load
  static constexpr unsigned shuffles = 4, rungs = 4;
  // One case of the search by pairs takes about as long as placing this many buffers.
  static constexpr std::uint64_t buffers_of_a_case = 16;

  /// Searches by pairs half way to the target, and just below the best plan. A refutation of the second
  /// height proves the best plan optimal.
  void try_pairs(std::uint64_t cases) {
    const auto probe_at = [&](offset_type at) { return pairs_.probe(at, cases); };
    probe_heights(
        pairs_, [&] { return std::midpoint(context_->target(), context_->best().height - 1); }, probe_at);
    probe_heights(pairs_, [&] { return context_->best().height - 1; }, probe_at);
  }

  /// Raises the bound by bisection, using only the first case of the search by pairs.
  void raise_bound() {
    if (!pair_search::is_for(context_->instance())) return;
    offset_type high = context_->best().height;  // heights below are still open
    while (!context_->done() && context_->proven_bound() < high) {
      const offset_type middle = std::midpoint(context_->proven_bound(), high - 1);
      if (!is_decided(pairs_, middle, [&](offset_type at) { return pairs_.probe(at, 1); })) high = middle;
      high = std::min(high, context_->best().height);
    }
  }

  /// Returns an order by area, each area scaled by a random factor from 0.5 to 1.5.
  order shuffled_areas() {
    std::vector<double> areas;
    for (buffer const& each : context_->instance().buffers) {
      areas.push_back(each.duration * static_cast<double>(each.size) *
                      (0.5 + static_cast<double>(random_() % 1024) / 1024));
    }
    return numbers_by(areas.size(), [&](std::uint32_t i) { return areas[i]; }, std::greater{});
  }

  /// Tries each way until it has no answer. The search along the skyline is usually fastest by far. If its
  /// six orders fail, most moments usually have unused memory, so the search along time gets a larger budget.
  /// A random order may still succeed at once.
  template <class Height>
  void try_each_way(std::uint64_t nodes, Height height) {
    using enum exact_search::way;
    const auto probe_exact = [&](exact_search::way way, order const& by) {
      probe_heights(exact_, height, [&](offset_type at) { return exact_.probe(way, by, at, nodes); });
    };
    for (aspects const& by : orders) probe_exact(along_skyline, order_by(context_->instance(), by));
    // The search along time solves most steps that shorter turns did not solve.
    if (time_search::can_backtrack(context_->instance()))
      probe_heights(time_, height, [&](offset_type at) { return time_.probe(at, nodes * 32); });
    for (unsigned k = 0; k < shuffles; ++k) probe_exact(along_skyline, shuffled_areas());
    if (context_->instance().buffers.size() <= max_rising_buffers) {
      for (aspects const& by : std::span{orders}.first(rising_orders))
        probe_exact(by_rising_offset, order_by(context_->instance(), by));
    }
  }

  /// Probes a height, and the next height as long as each probe has an answer.
  template <class Search, class Height, class Probe>
  void probe_heights(Search& search, Height height, Probe probe_at) {
    while (!context_->done() && is_decided(search, height(), probe_at)) continue;
  }

  /// @return true if a layout of this height was found or refuted
  template <class Search, class Probe>
  bool is_decided(Search& search, offset_type height, Probe probe_at) {
    const outcome answer = probe_at(height);
    if (answer == outcome::impossible) context_->raise_bound(height + 1);
    if (answer == outcome::found) context_->offer(search.offsets());
    return answer != outcome::unknown;
  }

  solver_context* context_;
  exact_search exact_;
  time_search time_;
  pair_search pairs_;
  std::mt19937_64 random_;
  bool has_raised_bound_ = false;
};

/// Returns the size of the largest group of buffers that no moment without live buffers divides.
std::uint32_t largest_part(problem const& instance) {
  std::vector<buffer> const& all = instance.buffers;
  std::uint32_t largest = 0, part = 0, end = 0;
  for (std::uint32_t i : numbers_by(all.size(), [&](std::uint32_t k) { return all[k].lifespan.begin; })) {
    part = all[i].lifespan.begin < end ? part + 1 : 1;
    end = std::max(end, all[i].lifespan.end);
    largest = std::max(largest, part);
  }
  return largest;
}

}  // namespace

endless_stage height_search(solver_context& context) {
  // Counting more sections than this takes longer than most searches.
  constexpr std::uint64_t max_sections = std::uint64_t{1} << 25U;
  std::uint64_t sections = 0;
  for (buffer const& each : context.instance().buffers) sections += each.lifespan.end - each.lifespan.begin;
  if (context.instance().graph || sections > max_sections) return {};
  // The remaining buffers of each node on the path do not fit onto the stack for larger parts.
  constexpr std::uint32_t max_part = 2048;
  if (largest_part(context.instance()) > max_part) return {};
  return [stage = std::make_shared<prober>(context)](std::uint64_t nodes) { stage->probe(nodes); };
}

}  // namespace tidemark::planner::detail
