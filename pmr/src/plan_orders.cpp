// SPDX-License-Identifier: Apache-2.0
#include "plan_orders.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <vector>

#include "plan_space.hpp"

namespace tidemark::detail::planning {
namespace {

/// The lowest offset of the gap that is chosen.
granules choose_gap(std::vector<range_reader>& readers, piece const& wanting, gap_choice choice) {
  granules chosen = nowhere;
  granules smallest = nowhere;
  each_gap(readers, wanting.size, [&](granules begin, granules end) {
    const granules offset = aligned_up(begin, wanting.align);
    if (offset > end || end - offset < wanting.size) return false;
    if (chosen == nowhere || end - begin < smallest) {
      chosen = offset;
      smallest = end - begin;
    }
    return choice == gap_choice::lowest || smallest == wanting.size;
  });
  return chosen;
}

/// Numbers of the pieces that are not fixed, in falling `key`, and those that are equal by their number.
template <class Key>
std::vector<std::uint32_t> order_by(problem const& asked, Key key) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < asked.pieces.size(); ++i) {
    if (asked.pieces[i].fixed == nowhere) order.push_back(i);
  }
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const auto one = std::invoke(key, asked.pieces[a]);
    const auto other = std::invoke(key, asked.pieces[b]);
    return one != other ? one > other : a < b;
  });
  return order;
}

double load(piece const& each) { return static_cast<double>(each.load); }
double area(piece const& each) { return each.span * static_cast<double>(each.size); }
std::int64_t birth(piece const& each) { return -static_cast<std::int64_t>(each.first_section); }

/// A layout that grows by a piece at a time. The fixed pieces lie where they must from the start.
template <class Space>
class growing_layout {
 public:
  explicit growing_layout(search_run& run)
      : run_{&run}, asked_{&run.asked()}, space_{*asked_}, offsets_(asked_->pieces.size(), 0) {}

  void restart() {
    space_.clear();
    height_ = 0;
    for (std::uint32_t i = 0; i < asked_->pieces.size(); ++i) {
      if (asked_->pieces[i].fixed == nowhere) continue;
      any_fixed_ = true;
      note(i, asked_->pieces[i].fixed);
    }
  }

  /// Offers the layout of that order. @return false if the search was cut off.
  bool place(std::span<std::uint32_t const> order, gap_choice choice) {
    restart();
    for (std::uint32_t i : order) {
      space_.read(i, readers_);
      const std::uint64_t steps = ranges_to_read();
      note(i, choose_gap(readers_, asked_->pieces[i], choice));
      if (!run_->count() || !run_->spend(steps)) return false;
      if (height_ >= run_->best().height) return true;
    }
    run_->offer(offsets_, height_);
    return true;
  }

  /// Offers the layout in which the piece of `order` is next that can lie lowest above the floor of what is
  /// placed, and of equals the first. @return false if the search was cut off.
  bool place_lowest(std::span<std::uint32_t const> order) {
    restart();
    // An offset only grows while others are placed, so that a piece's turn comes no earlier than it is noted.
    using turn = std::pair<granules, std::uint32_t>;
    std::priority_queue<turn, std::vector<turn>, std::greater<>> turns;
    for (std::uint32_t at = 0; at < order.size(); ++at) {
      if (!run_->spend(turn_steps_)) return false;
      turns.emplace(lowest_above_floor(order[at]), at);
    }
    while (!turns.empty()) {
      const auto [noted, at] = turns.top();
      const std::uint32_t i = order[at];
      const granules offset = lowest_above_floor(i);
      turns.pop();
      if (!run_->spend(turn_steps_)) return false;
      // It lies no lower later.
      if (offset + asked_->pieces[i].size >= run_->best().height) return true;
      if (offset > noted) {
        turns.emplace(offset, at);
        continue;
      }
      offsets_[i] = offset;
      space_.raise(i, offset + asked_->pieces[i].size);
      height_ = std::max(height_, offset + asked_->pieces[i].size);
      if (!run_->count() || !run_->spend(space_.raise_steps(i))) return false;
    }
    // The fixed pieces may be higher than all others.
    if (height_ < run_->best().height) run_->offer(offsets_, height_);
    return true;
  }

 private:
  static constexpr std::uint64_t turn_steps_least = 16;

  /// How many ranges the readers have before them.
  [[nodiscard]] std::uint64_t ranges_to_read() const {
    std::uint64_t ranges = 0;
    for (range_reader const& each : readers_) ranges += static_cast<std::uint64_t>(each.end - each.next);
    return ranges;
  }

  void note(std::uint32_t i, granules offset) {
    offsets_[i] = offset;
    space_.take(i, offset);
    height_ = std::max(height_, offset + asked_->pieces[i].size);
  }

  /// Only the fixed pieces are noted as taken in that order.
  granules lowest_above_floor(std::uint32_t i) {
    piece const& each = asked_->pieces[i];
    granules floor = aligned_up(space_.floor(i), each.align);
    if (!any_fixed_) return floor;
    space_.read(i, readers_);
    turn_steps_ = turn_steps_least + ranges_to_read();
    each_gap(readers_, each.size, [&](granules begin, granules end) {
      const granules offset = aligned_up(std::max(begin, floor), each.align);
      if (offset > end || end - offset < each.size) return false;
      floor = offset;
      return true;
    });
    return floor;
  }

  search_run* run_;
  problem const* asked_;
  Space space_;
  std::vector<granules> offsets_;
  granules height_ = 0;
  bool any_fixed_ = false;
  std::uint64_t turn_steps_ = turn_steps_least;  // that it took to find where a piece can lie
  std::vector<range_reader> readers_;
};

bool all_of_one_size(problem const& asked) {
  return std::ranges::all_of(asked.pieces, [&](piece const& each) {
    return each.size == asked.pieces.front().size && each.align == 1 && each.fixed == nowhere;
  });
}

template <class Space>
void place_by_size_in(search_run& run) {
  growing_layout<Space> layout{run};
  problem const& asked = run.asked();
  // Where all have one size any order is by size, and by birth no moment needs more than what is live then.
  const auto order = all_of_one_size(asked) ? order_by(asked, birth) : order_by(asked, &piece::size);
  (void)layout.place(order, gap_choice::lowest);
}

template <class Space>
void place_in_orders_in(search_run& run, gap_choice choice) {
  growing_layout<Space> layout{run};
  problem const& asked = run.asked();
  const auto by_size = [](piece const& each) { return std::tuple{each.size, birth(each)}; };
  const auto by_size_and_span = [](piece const& each) { return std::tuple{each.size, each.span}; };
  // Each order is made when it is needed, as to sort is not free where there are many. Birth and life come
  // first: where blocks outlive each other in turn, little is left to gain after them.
  const std::array<std::function<std::vector<std::uint32_t>()>, 5> orders{
      [&] { return order_by(asked, birth); }, [&] { return order_by(asked, &piece::span); },
      [&] { return order_by(asked, area); }, [&] { return order_by(asked, by_size); },
      [&] { return order_by(asked, by_size_and_span); }};
  for (auto const& order : orders) {
    if (run.over() || !layout.place(order(), choice)) return;
  }
}

template <class Space>
void place_lowest_first_in(search_run& run) {
  growing_layout<Space> layout{run};
  problem const& asked = run.asked();
  using key = std::tuple<double, double, double>;
  const std::array<key (*)(piece const&), 5> keys{
      [](piece const& each) { return key{load(each), each.span, area(each)}; },
      [](piece const& each) { return key{load(each), area(each), each.span}; },
      [](piece const& each) { return key{each.span, load(each), area(each)}; },
      [](piece const& each) { return key{area(each), load(each), each.span}; },
      [](piece const& each) { return key{static_cast<double>(each.size), load(each), each.span}; }};
  for (auto const& by : keys) {
    if (run.over() || !layout.place_lowest(order_by(asked, by))) return;
  }
}

}  // namespace

void place_by_size(search_run& run) {
  run.enter("size");
  run.asked().graph ? place_by_size_in<graph_space>(run) : place_by_size_in<section_space>(run);
  run.obey_limits();
}

void place_in_orders(search_run& run, gap_choice choice) {
  if (run.over()) return;
  run.enter("orders");
  run.asked().graph ? place_in_orders_in<graph_space>(run, choice)
                    : place_in_orders_in<section_space>(run, choice);
}

void place_lowest_first(search_run& run) {
  if (run.over()) return;
  run.enter("lowest");
  run.asked().graph ? place_lowest_first_in<graph_space>(run) : place_lowest_first_in<section_space>(run);
}

}  // namespace tidemark::detail::planning
