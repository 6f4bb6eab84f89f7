// SPDX-License-Identifier: Apache-2.0
// The stage of make_plan that goes through all layouts of a height that need to be looked at.

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "space.hpp"
#include "stages.hpp"

namespace tidemark::detail::planning {
namespace {

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

// Of what failed, so much is remembered: the newest in each place.
constexpr std::size_t max_failure_n = std::size_t{1} << 16;
// A probe gives up that would go deeper: 32 MiB, and some 2,000 buffers.
constexpr std::size_t max_stack = std::size_t{1} << 21;

/// A buffer, by its place in the order that a probe goes by.
struct ranked {
  section_range lifespan;
  offset_type size = 0;
  offset_type align = 1;
  offset_type least_neighbor = 0;  // the least size of those in conflict with it
  std::uint32_t number = 0;        // of the buffer
  std::uint32_t twin = no_rank;    // the one before it that is just alike
  std::uint32_t stack_group = 0;   // of those that are live in the same sections
  bool fixed = false;
  bool swaps = false;  // whether it may change places with its neighbor in a stack
};

/// A buffer, and where it lies, or the lowest offset that it can still have. Each is placed behind the
/// one before it: by offset, then by rank.
struct placement {
  offset_type offset = 0;
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

/// The one that was placed last in the sections that it has.
struct stack_top {
  offset_type end = no_offset;
  std::uint32_t rank = 0;
};

/// Names what is left and where it could lie, in so many bits that no two are taken for the same.
struct state_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(state_key const&, state_key const&) = default;
};

/// What is left that could not be placed behind `after`. Then it cannot be placed after a later one either,
/// as all that could follow that could follow the earlier one too.
struct failure {
  state_key key;
  placement after;
};

/// Mixes bits so that each depends on all. Constants: D. Stafford's 13th variant of the finalizer of
/// MurmurHash3.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Whether there is a layout of a height.
enum class outcome : std::uint8_t { found, impossible, unknown };

/// Which of the buffers that may be next is tried first.
enum class next_choice : std::uint8_t { lowest, first_in_order };

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
///    sections and lie on each other. A section holds at each moment: its lowest offset of those left +
///   what
///    is left in it <= height. Buffers that are left and have no section in common with the others are
///   placed
///    by themselves, and fail by themselves.
///
/// Memory is O(n + sections) and a bounded stack and table. A node takes O(n + sections) steps.
class layout_search {
 public:
  explicit layout_search(solver_context& context)
      : context_{&context},
        instance_{&context.instance()},
        offsets_(instance_->buffers.size()),
        shapes_(instance_->buffers.size()),
        ranked_(instance_->buffers.size()),
        free_from_(instance_->buffers.size(), 0),
        left_(instance_->section_count, 0),
        crossing_(instance_->section_count + std::size_t{1}, 0),
        witness_(instance_->section_count, 0),
        failures_(std::bit_ceil(std::min(max_failure_n, instance_->buffers.size() * 256 + 1))) {
    for (std::uint32_t i = 0; i < shapes_.size(); ++i) {
      buffer const& each = instance_->buffers[i];
      shapes_[i] = {.lifespan = each.lifespan,
                    .size = each.size,
                    .align = each.align,
                    .number = i,
                    .fixed = each.is_fixed(),
                    .swaps = !each.is_fixed() && each.align == 1};
      for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) left_[s] += each.size;
      for (std::uint32_t s = each.lifespan.begin + 1; s < each.lifespan.end; ++s) ++crossing_[s];
    }
    find_groups();
    find_least_neighbors();
  }

  outcome probe(order const& by, next_choice choice, offset_type height, std::uint64_t max_nodes) {
    choice_ = choice;
    height_ = height;
    nodes_end_ = context_->nodes() + max_nodes;
    ++generation_;
    rank_buffers(by);
    unplaced_.clear();
    candidates_.clear();
    for (std::uint32_t rank = 0; rank < ranked_.size(); ++rank) {
      buffer const& each = instance_->buffers[ranked_[rank].number];
      unplaced_.push_back({each.fixed == no_offset ? 0 : each.fixed, rank});
    }
    node_view all{.begin = 0, .end = unplaced_.size()};
    if (!look_over(all, {0, 0}) || !sections_hold(all)) return outcome::impossible;
    return split_and_solve(all, {0, 0});
  }

  std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  /// Numbers the buffers that have the same sections, and those of them that are alike.
  void find_groups() {
    const auto sections = [&](std::uint32_t i) { return instance_->buffers[i].lifespan; };
    const auto kind = [&](std::uint32_t i) {
      buffer const& each = instance_->buffers[i];
      return std::tuple{sections(i), each.size, each.align, each.fixed};
    };
    const order by_kind = numbers_by(instance_->buffers.size(), kind);
    twin_group_.resize(by_kind.size());
    std::uint32_t twins = 0;
    std::uint32_t stacks = 0;
    for (std::size_t at = 0; at < by_kind.size(); ++at) {
      if (at != 0 && kind(by_kind[at]) != kind(by_kind[at - 1])) ++twins;
      if (at != 0 && sections(by_kind[at]) != sections(by_kind[at - 1])) ++stacks;
      twin_group_[by_kind[at]] = twins;
      shapes_[by_kind[at]].stack_group = stacks;
    }
    stack_tops_.resize(stacks + std::size_t{1});
  }

  void find_least_neighbors() {
    std::vector<std::array<offset_type, 2>> least_two(instance_->section_count, {no_offset, no_offset});
    for (ranked const& each : shapes_) {
      for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) {
        auto& [least, second] = least_two[s];
        second = std::min(second, std::max(least, each.size));
        least = std::min(least, each.size);
      }
    }
    for (ranked& each : shapes_) {
      offset_type of_all = no_offset;
      for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) {
        auto const [least, second] = least_two[s];
        of_all = std::min(of_all, least == each.size ? second : least);
      }
      // Without a neighbor it is alone in its sections, and the value is not used.
      each.least_neighbor = of_all == no_offset ? 0 : of_all;
    }
  }

  void rank_buffers(order const& by) {
    order newest(by.size(), no_rank);
    for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
      ranked_[rank] = shapes_[by[rank]];
      std::uint32_t& twin = newest[twin_group_[by[rank]]];
      if (!ranked_[rank].fixed) ranked_[rank].twin = twin;
      twin = rank;
    }
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
    state_key key{.low = generation_, .high = generation_};
    for (std::size_t at = node.begin; at < node.end; ++at) {
      placement const& each = unplaced_[at];
      const std::uint64_t name = std::uint64_t{each.rank} << 1U | std::uint64_t{stacked_wrongly(each)};
      const std::uint64_t bits = mixed(mixed(name + 1) + each.offset);
      key.low += bits;
      key.high += mixed(bits ^ 0x9e3779b97f4a7c15U);
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
    if (choice_ == next_choice::lowest)
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
    for (auto const& part : parts) {
      if (part.empty()) break;
      unplaced_.resize(node.begin);
      unplaced_.insert(unplaced_.end(), part.begin(), part.end());
      node_view view{.begin = node.begin, .end = unplaced_.size()};
      const outcome result = look_over(view, last) ? solve(view, last) : outcome::impossible;
      if (result != outcome::found) return result;
    }
    return outcome::found;
  }

  solver_context* context_;
  problem const* instance_;
  std::vector<offset_type> offsets_;       // by the number of the buffer, where it was placed last
  std::vector<ranked> shapes_;             // by number, without twins
  std::vector<ranked> ranked_;             // in the probe's order
  std::vector<std::uint32_t> twin_group_;  // by number
  std::vector<stack_top> stack_tops_;      // by group
  std::vector<offset_type> free_from_;     // by rank, of those left; no_offset: it is placed
  std::vector<offset_type> left_;          // by section, the sizes of those left
  std::vector<std::uint32_t> crossing_;    // by section, how many of those left it shares with the one before
  std::vector<std::uint32_t> witness_;     // by section, the rank of one that was low enough
  std::vector<placement> unplaced_;    // a stack: what is left of each node on the way, one after the other
  std::vector<placement> candidates_;  // a stack, likewise
  std::vector<failure> failures_;
  std::uint64_t generation_ = 0;  // of the probe: what failed in another one says nothing here
  std::uint32_t suspect_ = 0;     // the section that failed last
  next_choice choice_ = next_choice::lowest;
  offset_type height_ = 0;
  std::uint64_t nodes_end_ = 0;
};

/// Searches at several heights, at each in several ways.
class prober {
 public:
  prober(solver_context& context, std::span<order const> orders)
      : context_{&context}, orders_{orders}, search_{context}, random_{context.seed()} {}

  /// Tries the bound, which is cheapest to refute, the target, and for a shorter time a height between
  /// the target and the best.
  void probe(std::uint64_t nodes) {
    try_each_way(nodes, [&] { return context_->proven_bound(); });
    if (context_->target() > context_->proven_bound())
      try_each_way(nodes, [&] { return context_->target(); });
    try_each_way(nodes / 4,
                 [&] { return context_->target() + (context_->best().height - 1 - context_->target()) / 2; });
  }

 private:
  // Which tries found cuts of a rectangle soonest: the orders that begin with the load, and changes of the
  // first.
  static constexpr std::size_t unshuffled_orders = 3;
  static constexpr unsigned shuffles = 4;

  /// An order that is the first one roughly.
  order shuffled() {
    std::vector<buffer> const& buffers = context_->instance().buffers;
    std::vector<double> keys;
    for (buffer const& each : buffers)
      keys.push_back(each.duration * (0.5 + static_cast<double>(random_() % 1024) / 1024));
    return numbers_by(
        buffers.size(), [&](std::uint32_t i) { return std::pair{buffers[i].load, keys[i]}; }, std::greater{});
  }

  /// Tries each way until it has no answer. To try the lowest first is mostly best, and gets most nodes.
  template <class Height>
  void try_each_way(std::uint64_t nodes, Height height) {
    const auto try_order = [&](order const& by, next_choice choice, std::uint64_t max_nodes) {
      while (!context_->done() && has_answer(by, choice, height(), max_nodes)) continue;
    };
    for (order const& by : orders_.first(unshuffled_orders)) try_order(by, next_choice::lowest, nodes);
    for (unsigned k = 0; k < shuffles; ++k) try_order(shuffled(), next_choice::lowest, nodes);
    for (order const& by : orders_) try_order(by, next_choice::first_in_order, nodes / 4);
  }

  bool has_answer(order const& by, next_choice choice, offset_type height, std::uint64_t nodes) {
    const outcome answer = search_.probe(by, choice, height, nodes);
    if (answer == outcome::impossible) context_->raise_bound(height + 1);
    if (answer == outcome::found) {
      offset_type top = 0;
      for (std::size_t i = 0; i < search_.offsets().size(); ++i)
        top = std::max(top, search_.offsets()[i] + context_->instance().buffers[i].size);
      context_->offer(search_.offsets(), top);
    }
    return answer != outcome::unknown;
  }

  solver_context* context_;
  std::span<order const> orders_;
  layout_search search_;
  std::mt19937_64 random_;
};

}  // namespace

endless_stage height_search(solver_context& context, std::span<order const> orders) {
  // To count more sections than that takes longer than most searches.
  constexpr std::uint64_t max_sections = std::uint64_t{1} << 25U;
  std::uint64_t sections = 0;
  for (buffer const& each : context.instance().buffers) sections += each.lifespan.end - each.lifespan.begin;
  if (context.instance().graph || sections > max_sections) return {};
  return [stage = std::make_shared<prober>(context, orders)](std::uint64_t nodes) { stage->probe(nodes); };
}

}  // namespace tidemark::detail::planning
