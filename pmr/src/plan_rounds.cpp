// SPDX-License-Identifier: Apache-2.0
#include "plan_rounds.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
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

/// Asks the search about heights, with each order in both ways.
class prober {
 public:
  prober(search_run& run, std::span<order const> orders) : run_{&run}, orders_{orders}, search_{run} {}

  /// Asks about the bound, where the least need be looked at, about the height that is wanted, and where that
  /// is left open about one between it and the best.
  void probe(std::uint64_t nodes_each) {
    run_->enter("search");
    for_each_way(nodes_each, [&] { return run_->proven(); });
    if (run_->wanted() > run_->proven()) for_each_way(nodes_each, [&] { return run_->wanted(); });
    for_each_way(nodes_each, [&] { return run_->wanted() + (run_->best().height - 1 - run_->wanted()) / 2; });
  }

 private:
  [[nodiscard]] std::size_t way_n() const noexcept { return orders_.size() * 2; }

  /// Asks with each way until it has no answer.
  template <class Height>
  void for_each_way(std::uint64_t nodes, Height height) {
    for (std::size_t way = 0; way < way_n(); ++way) {
      while (!run_->over() && ask(way, height(), nodes)) continue;
    }
  }

  /// @return whether there was an answer.
  bool ask(std::size_t way, granules height, std::uint64_t nodes) {
    const next_choice choice = way % 2 == 0 ? next_choice::lowest : next_choice::first_in_order;
    const outcome answer = search_.probe(orders_[way / 2], choice, height, nodes);
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
};

}  // namespace

void climb_and_search(search_run& run, bool exact) {
  // The tries of the first round; each round doubles them.
  constexpr std::uint64_t nodes_least = 512;
  // Where the search is not to be exact, it is as far as a try goes.
  constexpr std::uint64_t inexact_nodes_max = std::uint64_t{1} << 15U;
  const std::vector<order> orders = orders_of(run.asked());
  hill_climb hill{run};
  std::optional<prober> search;
  if (!run.asked().graph) search.emplace(run, orders);
  std::uint64_t nodes = nodes_least + run.asked().pieces.size() * 2;
  for (; !run.over(); nodes *= 2) {
    run.enter("climb");
    hill.climb(orders, nodes * 4);
    if (run.over() || !search || (!exact && nodes > inexact_nodes_max)) continue;
    search->probe(nodes);
  }
}

}  // namespace tidemark::detail::planning
