// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "By rising offset"; of `prober` planner/docs/planner.md, "Restarts and heights".
// The stage of `improve` that goes through all layouts of a height that need to be looked at.

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "pair_search.hpp"
#include "search_buffers.hpp"
#include "skyline_search.hpp"
#include "stages.hpp"
#include "time_search.hpp"

namespace tidemark::planner::detail {
namespace {

// Of what failed, so much is remembered: the newest in each place.
constexpr std::size_t max_failure_n = std::size_t{1} << 16;
// A probe gives up that would go deeper: 32 MiB, and some 2,000 buffers.
constexpr std::size_t max_stack = std::size_t{1} << 21;

/// A buffer, and where it lies, or the lowest offset that it can still have. Each is placed behind the
/// one before it: by offset, then by its position.
struct placement {
  offset_type offset = 0;
  std::uint32_t position = 0;  // in the order of the part that it belongs to
  std::uint32_t rank = 0;
  friend auto operator<=>(placement const&, placement const&) = default;
};

/// What is left of a node of the search, a range of the stack, and what was seen when it was looked over.
struct node_view {
  std::size_t begin = 0;
  std::size_t end = 0;
  offset_type window = no_offset;  // the next one must lie below
  section_range lifespan{no_rank, 0};
};

/// What is left that could not be placed behind `after`. Then it cannot be placed after a later one either,
/// as all that could follow that could follow the earlier one too.
struct failure {
  state_key key;
  placement after;
};

/// What a buffer has of the aspects that an order goes by.
using ranking_keys = std::array<double, 3>;

[[nodiscard]] ranking_keys keys_of(buffer const& each, aspects const& by) {
  const auto values = aspects_of(each);
  const auto value = [&](aspect which) { return values[static_cast<std::size_t>(which)]; };
  return {value(by[0]), value(by[1]), value(by[2])};
}

/// Looks for layouts of a given height of buffers with lifetimes, by placing and taking back one buffer
/// after the other. `impossible` is proven: every layout was visited, or is known to be no better than
/// another.
///
/// The ideas of what need not be looked at are those of Moffitt, "MiniMalloc: A Lightweight Memory
/// Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023, and one more: what failed once is
/// kept.
///
/// Of all layouts of that height there is one that is least, comparing the offsets of the buffers in their
/// order. It alone need be found, and so:
///  - no buffer could lie lower with the others where they are: it lies at 0, at its fixed offset or on
///    another;
///  - buffers are placed by rising offset, and equal offsets in their order;
///  - a buffer that is left could otherwise lie below the next one, and so none is placed at or above
///    `min(offset[j] + size[j])` over those that are left, where `offset[j]` is where j could lie now;
///  - of buffers that are alike the first is lower, and so is the first of two that are live in the same
///    sections and lie on each other.
/// A section holds at each moment: its lowest offset of those left + what is left in it <= height. Buffers
/// that are left and have no section in common with the others are placed by themselves, and fail by
/// themselves. Such a part gets an order of its own, which only says which of equal offsets comes first.
///
/// Memory is O(n + sections) and a bounded stack and table. A node takes O(n + sections) steps.
class layout_search {
 public:
  explicit layout_search(solver_context& context)
      : context_{&context},
        instance_{&context.instance()},
        offsets_(instance_->buffers.size()),
        shapes_(shapes_of(*instance_)),
        keys_(instance_->buffers.size()),
        stack_tops_(instance_->buffers.size()),
        free_from_(instance_->buffers.size(), 0),
        left_(instance_->section_count, 0),
        crossing_(instance_->section_count + std::size_t{1}, 0),
        witness_(instance_->section_count, 0),
        failures_(std::bit_ceil(std::min(max_failure_n, instance_->buffers.size() * 256 + 1))) {
    for (ranked const& each : shapes_) {
      for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) left_[s] += each.size;
      for (std::uint32_t s = each.lifespan.begin + 1; s < each.lifespan.end; ++s) ++crossing_[s];
    }
  }

  outcome probe(aspects const& by, offset_type height, std::uint64_t max_nodes) {
    height_ = height;
    nodes_end_ = context_->nodes() + max_nodes;
    ++generation_;
    rank_buffers(by);
    unplaced_.clear();
    candidates_.clear();
    for (std::uint32_t rank = 0; rank < ranked_.size(); ++rank)
      unplaced_.push_back({ranked_[rank].fixed_offset, rank, rank});
    node_view all{.begin = 0, .end = unplaced_.size()};
    if (!look_over(all, {}) || !sections_hold(all)) return outcome::impossible;
    return split_and_solve(all, {});
  }

  std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  void rank_buffers(aspects const& by_aspects) {
    std::vector<ranking_keys> keys;
    keys.reserve(shapes_.size());
    for (std::uint32_t i = 0; i < shapes_.size(); ++i)
      keys.push_back(keys_of(instance_->buffers[i], by_aspects));
    load_key_ = static_cast<std::size_t>(std::ranges::find(by_aspects, aspect::load) - by_aspects.begin());
    const order by =
        numbers_by(shapes_.size(), [&](std::uint32_t i) -> auto const& { return keys[i]; }, std::greater{});
    ranked_ = rank_shapes(shapes_, by);
    for (std::uint32_t rank = 0; rank < by.size(); ++rank) keys_[rank] = keys[by[rank]];
    std::ranges::fill(stack_tops_, stack_top{});
  }

  /// The lowest offset at which it can still be placed. One that has been passed must first be raised by a
  /// neighbor that comes later.
  [[nodiscard]] offset_type free_from(placement at, placement last) const {
    if (at >= last) return at.offset;
    return last.offset + ranked_[at.rank].least_neighbor;
  }

  /// Whether two that have the same sections would lie on each other in the wrong order.
  [[nodiscard]] bool stacked_wrongly(placement at) const {
    ranked const& each = ranked_[at.rank];
    stack_top const& top = stack_tops_[each.stack_group];
    return top.end == at.offset && at.rank < top.rank && each.swaps && ranked_[top.rank].swaps;
  }

  /// Finds how low each of a new node can still be placed. @return whether all can be, below `height_`.
  bool look_over(node_view& node, placement last) {
    for (std::size_t at = node.begin; at < node.end; ++at) {
      if (!look_at(unplaced_[at], node, last)) return false;
    }
    return true;
  }

  bool look_at(placement each, node_view& node, placement last) {
    ranked const& shape = ranked_[each.rank];
    const offset_type from = free_from(each, last);
    free_from_[each.rank] = from;
    node.window = std::min(node.window, each.offset + shape.size);
    node.lifespan.begin = std::min(node.lifespan.begin, shape.lifespan.begin);
    node.lifespan.end = std::max(node.lifespan.end, shape.lifespan.end);
    return from + shape.size <= height_;
  }

  /// Places what is left of a node, whose sections are connected and were looked over, behind `last`.
  outcome solve(node_view const& node, placement last) {
    if (node.end - node.begin == 1) {
      placement const& only = unplaced_[node.begin];
      offsets_[ranked_[only.rank].number] = only.offset;
      return outcome::found;
    }
    if (node.window <= last.offset) return outcome::impossible;
    const state_key key = key_of(node);
    const std::size_t place_of_key = key.low % failures_.size();
    if (failures_[place_of_key].key == key && failures_[place_of_key].after <= last)
      return outcome::impossible;
    const outcome result = try_candidates(node, last);
    if (result == outcome::impossible) failures_[place_of_key] = {key, last};
    return result;
  }

  [[nodiscard]] bool section_holds_with(std::uint32_t section, std::uint32_t rank) const {
    ranked const& shape = ranked_[rank];
    return shape.lifespan.begin <= section && section < shape.lifespan.end && free_from_[rank] != no_offset &&
           free_from_[rank] + left_[section] <= height_;
  }

  /// Whether the section has one left that is low enough for all that is left in it. The one that was found
  /// last is tested first; mostly it still is.
  bool section_holds(std::uint32_t section, node_view const& node) {
    if (left_[section] == 0 || section_holds_with(section, witness_[section])) return true;
    for (std::size_t at = node.begin; at < node.end; ++at) {
      if (!section_holds_with(section, unplaced_[at].rank)) continue;
      witness_[section] = unplaced_[at].rank;
      return true;
    }
    return false;
  }

  /// Whether all sections of a node hold. The one that failed last is tested first.
  bool sections_hold(node_view const& node) {
    if (node.lifespan.begin <= suspect_ && suspect_ < node.lifespan.end && !section_holds(suspect_, node))
      return false;
    for (std::uint32_t section = node.lifespan.begin; section < node.lifespan.end; ++section) {
      if (section_holds(section, node)) continue;
      suspect_ = section;
      return false;
    }
    return true;
  }

  [[nodiscard]] state_key key_of(node_view const& node) const {
    state_key key{.low = generation_ + part_, .high = generation_ - part_};
    for (std::size_t at = node.begin; at < node.end; ++at) {
      placement const& each = unplaced_[at];
      add_to_key(key, each.rank, stacked_wrongly(each), each.offset);
    }
    return key;
  }

  /// Places each of those that may be next, until one leads to a layout.
  outcome try_candidates(node_view const& node, placement last) {
    // None may be so high that the fullest section could not hold what is left in it.
    offset_type most_left = 0;
    for (std::uint32_t section = node.lifespan.begin; section < node.lifespan.end; ++section)
      most_left = std::max(most_left, left_[section]);
    const offset_type highest = std::min(node.window - 1, height_ - most_left);
    const std::size_t first = candidates_.size();
    for (std::size_t at = node.begin; at < node.end; ++at) {
      placement const& each = unplaced_[at];
      if (each.offset > highest || each < last || stacked_wrongly(each)) continue;
      const std::uint32_t twin = ranked_[each.rank].twin;
      if (twin == no_rank || free_from_[twin] == no_offset) candidates_.push_back(each);
    }
    std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(first), candidates_.end());
    const std::size_t end = candidates_.size();
    outcome result = outcome::impossible;
    for (std::size_t k = first; k < end && result == outcome::impossible; ++k) {
      result = place(node, candidates_[k]);
      candidates_.resize(end);
    }
    candidates_.resize(first);
    return result;
  }

  /// Places one of a node, and then the others.
  outcome place(node_view const& node, placement next) {
    const std::size_t begin = unplaced_.size();
    if (!context_->count_node(node.end - node.begin) || context_->nodes() > nodes_end_ ||
        begin + (node.end - node.begin) > max_stack)
      return outcome::unknown;
    ranked const& shape = ranked_[next.rank];
    offsets_[shape.number] = next.offset;
    node_view child{.begin = begin};
    outcome result = outcome::impossible;
    if (!push_others(node, next, child)) {
      unplaced_.resize(begin);
      return result;
    }
    stack_top& stack = stack_tops_[shape.stack_group];
    const stack_top was = std::exchange(stack, {next.offset + shape.size, next.rank});
    for (std::uint32_t s = shape.lifespan.begin; s < shape.lifespan.end; ++s) left_[s] -= shape.size;
    if (sections_hold(child)) {
      bool split = child.begin == child.end;
      for (std::uint32_t s = shape.lifespan.begin + 1; s < shape.lifespan.end; ++s)
        split |= --crossing_[s] == 0;
      result = split ? split_and_solve(child, next) : solve(child, next);
      for (std::uint32_t s = shape.lifespan.begin + 1; s < shape.lifespan.end; ++s) ++crossing_[s];
    }
    for (std::uint32_t s = shape.lifespan.begin; s < shape.lifespan.end; ++s) left_[s] += shape.size;
    stack = was;
    unplaced_.resize(begin);
    return result;
  }

  /// Puts what is left of a node when `next` is placed onto the stack, and looks it over.
  /// @return whether all of it can still be placed.
  bool push_others(node_view const& node, placement next, node_view& child) {
    ranked const& shape = ranked_[next.rank];
    const offset_type top = next.offset + shape.size;
    unplaced_.resize(child.begin + (node.end - node.begin) - 1);
    child.end = child.begin;
    free_from_[next.rank] = no_offset;
    for (std::size_t at = node.begin; at < node.end; ++at) {
      placement each = unplaced_[at];
      if (each.rank == next.rank) continue;
      ranked const& other = ranked_[each.rank];
      if (each.offset < top && other.lifespan.overlaps(shape.lifespan)) {
        if (other.fixed) return false;
        each.offset = align_up(top, other.align);
      }
      unplaced_[child.end++] = each;
      if (!look_at(each, child, next)) return false;
    }
    return true;
  }

  /// Orders a part anew, by what is left in the sections that each buffer has: where little is left, a
  /// buffer is no longer urgent, whatever lay there at first. What is left in a part, and so its order,
  /// depends on its buffers alone; thus a part is named by them, and the key of a state by the part too.
  void reorder(std::vector<placement>& part) {
    if (load_key_ < aspects{}.size()) {
      for (placement const& each : part) {
        auto const [begin, end] = ranked_[each.rank].lifespan;
        keys_[each.rank][load_key_] =
            static_cast<double>(*std::max_element(left_.begin() + begin, left_.begin() + end));
      }
    }
    std::ranges::sort(part, [&](placement const& one, placement const& other) {
      auto const& first = keys_[one.rank];
      auto const& second = keys_[other.rank];
      return first == second ? one.rank < other.rank : first > second;
    });
    part_ = 0;
    for (std::uint32_t k = 0; k < part.size(); ++k) {
      part[k].position = k;
      part_ += mixed(part[k].rank + std::uint64_t{1});
    }
  }

  /// Places what is left of a node, each connected part of the sections by itself, small ones first.
  outcome split_and_solve(node_view const& node, placement last) {
    std::vector<std::uint32_t> cuts;
    for (std::uint32_t s = node.lifespan.begin + 1; s < node.lifespan.end; ++s) {
      if (crossing_[s] == 0) cuts.push_back(s);
    }
    std::vector<std::vector<placement>> parts(cuts.size() + 1);
    for (std::size_t at = node.begin; at < node.end; ++at) {
      const std::uint32_t section = ranked_[unplaced_[at].rank].lifespan.begin;
      parts[static_cast<std::size_t>(std::ranges::upper_bound(cuts, section) - cuts.begin())].push_back(
          unplaced_[at]);
    }
    std::ranges::sort(parts, [](auto const& a, auto const& b) {
      return !a.empty() && (b.empty() || std::pair{a.size(), a[0].rank} < std::pair{b.size(), b[0].rank});
    });
    const std::uint64_t whole = part_;
    for (auto& part : parts) {
      if (part.empty()) break;
      reorder(part);
      unplaced_.resize(node.begin);
      unplaced_.insert(unplaced_.end(), part.begin(), part.end());
      node_view view{.begin = node.begin, .end = unplaced_.size()};
      // In its new order some come first that have been passed; what follows from them failed before.
      const placement floor{.offset = last.offset};
      const outcome result = look_over(view, floor) ? solve(view, floor) : outcome::impossible;
      part_ = whole;
      if (result != outcome::found) return result;
    }
    return outcome::found;
  }

  solver_context* context_;
  problem const* instance_;
  std::vector<offset_type> offsets_;     // by the number of the buffer, where it was placed last
  std::vector<ranked> shapes_;           // by number, without twins
  std::vector<ranked> ranked_;           // in the probe's order
  std::vector<ranking_keys> keys_;       // by rank, that the order goes by; a load is kept up to date
  std::vector<stack_top> stack_tops_;    // by group
  std::vector<offset_type> free_from_;   // by rank, of those left; no_offset: it is placed
  std::vector<offset_type> left_;        // by section, the sizes of those left
  std::vector<std::uint32_t> crossing_;  // by section, how many of those left it shares with the one before
  std::vector<std::uint32_t> witness_;   // by section, the rank of one that was low enough
  std::vector<placement> unplaced_;      // a stack: what is left of each node on the way, one after the other
  std::vector<placement> candidates_;    // a stack, likewise
  std::vector<failure> failures_;
  std::uint64_t generation_ = 0;  // of the probe: what failed in another one says nothing here
  std::uint64_t part_ = 0;        // names the part, and so its order
  std::size_t load_key_ = 0;      // of the probe's order
  std::uint32_t suspect_ = 0;     // the section that failed last
  offset_type height_ = 0;
  std::uint64_t nodes_end_ = 0;
};

/// Searches at several heights, at each in several ways.
class prober {
 public:
  prober(solver_context& context, std::span<aspects const> orders)
      : context_{&context},
        orders_{orders},
        search_{context},
        skyline_{context},
        time_{context},
        pairs_{context},
        random_{context.seed()} {}

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
  static constexpr unsigned shuffles = 4;
  static constexpr unsigned rungs = 4;
  // What shorter turns have not found is mostly found along time, if at all.
  static constexpr std::uint64_t long_turn = std::uint64_t{1} << 14U;
  // A case of pairs takes about as long as placing so many.
  static constexpr std::uint64_t buffers_of_a_case = 16;

  /// By pairs: half way to the target, and just below the best, which is what a proof needs.
  void try_pairs(std::uint64_t cases) {
    const auto ask = [&](auto height) {
      const auto probe_at = [&](offset_type at) { return pairs_.probe(at, cases); };
      while (!context_->done() && has_answer(pairs_, height(), probe_at)) continue;
    };
    ask([&] { return std::midpoint(context_->target(), context_->best().height - 1); });
    ask([&] { return context_->best().height - 1; });
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

  /// Tries each way until it has no answer. Along the skyline is mostly best by far. Where it failed, there is mostly
  /// memory unused at most moments, and to go along time for longer is best: the more so in long turns.
  template <class Height>
  void try_each_way(std::uint64_t nodes, Height height) {
    const auto ask = [&](auto& search, auto probe_at) {
      while (!context_->done() && has_answer(search, height(), probe_at)) continue;
    };
    const auto ask_skyline = [&](order const& by) {
      ask(skyline_, [&](offset_type at) { return skyline_.probe(by, at, nodes); });
    };
    const auto ask_time = [&](std::uint64_t max_nodes) {
      if (time_search::goes_back(context_->instance()))
        ask(time_, [&](offset_type at) { return time_.probe(at, max_nodes); });
    };
    for (aspects const& by : orders_) ask_skyline(order_by(context_->instance(), by));
    ask_time(nodes);
    for (unsigned k = 0; k < shuffles; ++k) ask_skyline(shuffled_areas());
    if (context_->instance().buffers.size() <= max_rising_buffers) {
      for (aspects const& by : orders_.first(rising_orders))
        ask(search_, [&](offset_type at) { return search_.probe(by, at, nodes); });
    }
    ask_time(nodes * (nodes < long_turn ? 8 : 32));
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
  std::span<aspects const> orders_;
  layout_search search_;
  skyline_search skyline_;
  time_search time_;
  pair_search pairs_;
  std::mt19937_64 random_;
  bool has_raised_bound_ = false;
};

/// How many buffers the largest part has that no moment without any cuts in two.
std::uint32_t largest_part(problem const& instance) {
  // By section: how many begin there, and differences of how many it shares with the one before.
  std::vector<std::uint32_t> begins(instance.section_count, 0);
  std::vector<std::int64_t> crossing(instance.section_count + std::size_t{1}, 0);
  for (buffer const& each : instance.buffers) {
    ++begins[each.lifespan.begin];
    ++crossing[each.lifespan.begin + std::size_t{1}];
    --crossing[each.lifespan.end];
  }
  std::uint32_t largest = 0, part = 0;
  std::int64_t shared = 0;
  for (std::uint32_t s = 0; s < instance.section_count; ++s) {
    shared += crossing[s];
    part = shared == 0 ? begins[s] : part + begins[s];
    largest = std::max(largest, part);
  }
  return largest;
}

}  // namespace

endless_stage height_search(solver_context& context, std::span<aspects const> orders) {
  // To count more sections than that takes longer than most searches.
  constexpr std::uint64_t max_sections = std::uint64_t{1} << 25U;
  std::uint64_t sections = 0;
  for (buffer const& each : context.instance().buffers) sections += each.lifespan.end - each.lifespan.begin;
  if (context.instance().graph || sections > max_sections) return {};
  // Of more, what is left at each node on the way down does not fit onto its stack.
  constexpr std::uint32_t max_part = 2048;
  if (largest_part(context.instance()) > max_part) return {};
  return [stage = std::make_shared<prober>(context, orders)](std::uint64_t nodes) { stage->probe(nodes); };
}

}  // namespace tidemark::planner::detail
