// SPDX-License-Identifier: Apache-2.0
#include "plan_rounds.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "plan_climb.hpp"
#include "plan_search.hpp"

namespace tidemark::detail::planning {
namespace {

using order = std::vector<std::uint32_t>;

/// What an order goes by, the first thing first.
enum class aspect : std::uint8_t { load, span, area, size };

double value_of(piece const& each, aspect which) {
  switch (which) {
    case aspect::load:
      return static_cast<double>(each.load);
    case aspect::span:
      return each.span;
    case aspect::area:
      return each.span * static_cast<double>(each.size);
    case aspect::size:
      return static_cast<double>(each.size);
  }
  return 0;
}

/// The orders of the MiniMalloc paper, and two that go by size.
constexpr std::array<std::array<aspect, 3>, 6> aspects{{{aspect::load, aspect::span, aspect::area},
                                                        {aspect::load, aspect::area, aspect::span},
                                                        {aspect::load, aspect::size, aspect::span},
                                                        {aspect::span, aspect::load, aspect::area},
                                                        {aspect::size, aspect::span, aspect::load},
                                                        {aspect::area, aspect::span, aspect::load}}};

std::vector<order> orders_of(problem const& asked) {
  std::vector<order> orders;
  for (auto const& by : aspects) {
    order each(asked.pieces.size());
    std::iota(each.begin(), each.end(), 0U);
    std::ranges::sort(each, [&](std::uint32_t a, std::uint32_t b) {
      for (aspect which : by) {
        const double one = value_of(asked.pieces[a], which);
        const double other = value_of(asked.pieces[b], which);
        if (one != other) return one > other;
      }
      return a < b;
    });
    orders.push_back(std::move(each));
  }
  return orders;
}

/// Asks the search about heights, each time in several ways.
class prober {
 public:
  prober(search_run& run, std::span<order const> orders)
      : run_{&run}, orders_{orders}, search_{run}, random_{run.seed()} {}

  /// Asks about the bound, where the least need be looked at, about the height that is wanted, and where that
  /// is left open for a while about one between it and the best.
  void probe(std::uint64_t nodes_each) {
    run_->enter("search");
    for_each_way(nodes_each, [&] { return run_->proven(); });
    if (run_->wanted() > run_->proven()) for_each_way(nodes_each, [&] { return run_->wanted(); });
    const auto between = [&] { return run_->wanted() + (run_->best().height - 1 - run_->wanted()) / 2; };
    for_each_way(nodes_each / 4, between);
  }

 private:
  // Which tries found cuts of a rectangle soonest: the orders that begin with the load, and changes of the
  // first.
  static constexpr std::size_t orders_as_they_are = 3;
  static constexpr unsigned shuffles_each = 4;

  /// An order that is the first one roughly.
  void shuffle() {
    std::vector<double> keys;
    for (piece const& each : run_->asked().pieces) {
      const double factor = 0.5 + static_cast<double>(random_() % 1024) / 1024;
      keys.push_back(each.span * factor);
    }
    shuffled_ = orders_.front();
    std::ranges::sort(shuffled_, [&](std::uint32_t a, std::uint32_t b) {
      const granules one = run_->asked().pieces[a].load;
      const granules other = run_->asked().pieces[b].load;
      if (one != other) return one > other;
      return keys[a] != keys[b] ? keys[a] > keys[b] : a < b;
    });
  }

  /// Asks in each way until it has no answer. To try the lowest first is best mostly, and gets most of the
  /// nodes.
  template <class Height>
  void for_each_way(std::uint64_t nodes, Height height) {
    const auto ask_in = [&](std::span<std::uint32_t const> by, next_choice choice, std::uint64_t nodes_max) {
      while (!run_->over() && ask(by, choice, height(), nodes_max)) continue;
    };
    for (order const& by : orders_.first(orders_as_they_are)) ask_in(by, next_choice::lowest, nodes);
    for (unsigned k = 0; k < shuffles_each; ++k) {
      shuffle();
      ask_in(shuffled_, next_choice::lowest, nodes);
    }
    for (order const& by : orders_) ask_in(by, next_choice::first_in_order, nodes / 4);
  }

  /// @return whether there was an answer.
  bool ask(std::span<std::uint32_t const> by, next_choice choice, granules height, std::uint64_t nodes) {
    const outcome answer = search_.probe(by, choice, height, nodes);
    if (answer == outcome::impossible) run_->prove(height + 1);
    if (answer == outcome::found) {
      granules top = 0;
      for (std::size_t i = 0; i < search_.offsets().size(); ++i)
        top = std::max(top, search_.offsets()[i] + run_->asked().pieces[i].size);
      run_->offer(search_.offsets(), top);
    }
    return answer != outcome::unknown;
  }

  search_run* run_;
  std::span<order const> orders_;
  height_search search_;
  std::mt19937_64 random_;
  order shuffled_;
};

/// Whether there are lifetimes, and not so many sections in all that to count them takes longer than most
/// searches.
bool can_be_searched(problem const& asked) {
  constexpr std::uint64_t sections_max = std::uint64_t{1} << 25U;
  std::uint64_t sections = 0;
  for (piece const& each : asked.pieces) sections += each.last_section - each.first_section;
  return !asked.graph && sections <= sections_max;
}

}  // namespace

void climb_and_search(search_run& run, bool exact) {
  // The tries of the first round; each round doubles them.
  constexpr std::uint64_t nodes_least = 512;
  // Where the search is not to be exact, it is as far as a try goes.
  constexpr std::uint64_t inexact_nodes_max = std::uint64_t{1} << 14U;
  const std::vector<order> orders = orders_of(run.asked());
  hill_climb hill{run};
  std::optional<prober> search;
  if (can_be_searched(run.asked())) search.emplace(run, orders);
  std::uint64_t nodes = nodes_least + run.asked().pieces.size() * 2;
  while (!run.over()) {
    const bool searches = search && (exact || nodes <= inexact_nodes_max);
    if (!hill.quick() && !searches) return;
    if (hill.quick()) {
      run.enter("climb");
      hill.climb(orders, nodes * 4);
    }
    if (searches && !run.over()) search->probe(nodes);
    nodes *= 2;
  }
}

}  // namespace tidemark::detail::planning
