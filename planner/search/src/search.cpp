// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Restarts and heights".
// The stage of `improve` that asks for layouts of given heights. A turn tries each height in a few ways, for
// a number of nodes: along the skyline in six orders, along time for longer, along the skyline in random orders, of
// few buffers by rising offset; and, of few buffers, two heights by pairs. A layout
// that one way does not find in an hour another way mostly finds in milliseconds. A turn therefore tries all
// ways, and the next turn for twice as long. A height that has a layout makes the next one lower; one that is refuted raises the
// bound.
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

// The orders of the MiniMalloc paper, and two by size.
using enum aspect;
constexpr std::array<aspects, 6> orders{{{load, duration, area},
                                         {load, area, duration},
                                         {load, size, duration},
                                         {duration, load, area},
                                         {size, duration, load},
                                         {area, duration, load}}};

/// Searches at several heights, at each in several ways.
class prober {
 public:
  explicit prober(solver_context& context)
      : context_{&context}, exact_{context}, time_{context}, pairs_{context}, random_{context.seed()} {}

  /// Tries the bound, which is cheapest to refute, the target, and for a shorter time the heights of a ladder
  /// between the target and the best: half way, and then each time half as far from the best.
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
  // By rising offset small problems are decided soonest whose alignments differ. Of larger ones its turns are time that
  // the others use better.
  static constexpr std::size_t max_rising_buffers = 128;
  static constexpr std::size_t rising_orders = 3;  // that begin with the load
  static constexpr unsigned shuffles = 4, rungs = 4;
  // A case of pairs takes about as long as placing this many buffers.
  static constexpr std::uint64_t buffers_of_a_case = 16;

  /// By pairs: half way to the target, and just below the best, which is what a proof needs.
  void try_pairs(std::uint64_t cases) {
    const auto probe_at = [&](offset_type at) { return pairs_.probe(at, cases); };
    ask(pairs_, [&] { return std::midpoint(context_->target(), context_->best().height - 1); }, probe_at);
    ask(pairs_, [&] { return context_->best().height - 1; }, probe_at);
  }

  /// Raises the bound as far as the first case of pairs shows it.
  void raise_bound() {
    if (!pair_search::is_for(context_->instance())) return;
    offset_type high = context_->best().height;  // what is to be shown is below
    while (!context_->done() && context_->proven_bound() < high) {
      const offset_type middle = std::midpoint(context_->proven_bound(), high - 1);
      if (!has_answer(pairs_, middle, [&](offset_type at) { return pairs_.probe(at, 1); })) high = middle;
      high = std::min(high, context_->best().height);
    }
  }

  /// The areas, roughly.
  order shuffled_areas() {
    std::vector<double> areas;
    for (buffer const& each : context_->instance().buffers) {
      areas.push_back(each.duration * static_cast<double>(each.size) *
                      (0.5 + static_cast<double>(random_() % 1024) / 1024));
    }
    return numbers_by(areas.size(), [&](std::uint32_t i) { return areas[i]; }, std::greater{});
  }

  /// Tries each way until it has no answer. Along the skyline is mostly best by far. If the six orders failed, most
  /// moments mostly have unused memory, and to go along time for longer is best. Another order may succeed at once.
  template <class Height>
  void try_each_way(std::uint64_t nodes, Height height) {
    using enum exact_search::way;
    const auto ask_exact = [&](exact_search::way way, order const& by) {
      ask(exact_, height, [&](offset_type at) { return exact_.probe(way, by, at, nodes); });
    };
    for (aspects const& by : orders) ask_exact(along_skyline, order_by(context_->instance(), by));
    // Steps that shorter turns did not solve are mostly solved along time.
    if (time_search::goes_back(context_->instance()))
      ask(time_, height, [&](offset_type at) { return time_.probe(at, nodes * 32); });
    for (unsigned k = 0; k < shuffles; ++k) ask_exact(along_skyline, shuffled_areas());
    if (context_->instance().buffers.size() <= max_rising_buffers) {
      for (aspects const& by : std::span{orders}.first(rising_orders))
        ask_exact(by_rising_offset, order_by(context_->instance(), by));
    }
  }

  /// Asks for a height, and as long as there is an answer for the next one.
  template <class Search, class Height, class Probe>
  void ask(Search& search, Height height, Probe probe_at) {
    while (!context_->done() && has_answer(search, height(), probe_at)) continue;
  }

  /// @return whether there is a layout of the height, or is shown to be none.
  template <class Search, class Probe>
  bool has_answer(Search& search, offset_type height, Probe probe_at) {
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

/// How many buffers the largest part has that no moment without any cuts in two.
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
  // To count more sections than that takes longer than most searches.
  constexpr std::uint64_t max_sections = std::uint64_t{1} << 25U;
  std::uint64_t sections = 0;
  for (buffer const& each : context.instance().buffers) sections += each.lifespan.end - each.lifespan.begin;
  if (context.instance().graph || sections > max_sections) return {};
  // Of more, what is left at each node on the way down does not fit onto its stack.
  constexpr std::uint32_t max_part = 2048;
  if (largest_part(context.instance()) > max_part) return {};
  return [stage = std::make_shared<prober>(context)](std::uint64_t nodes) { stage->probe(nodes); };
}

}  // namespace tidemark::planner::detail
