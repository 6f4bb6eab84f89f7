// SPDX-License-Identifier: Apache-2.0
#include "plan_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan_space.hpp"

namespace tidemark::detail::planning {
namespace {

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

// Of what failed, so much is remembered: the newest in each place.
constexpr std::size_t failure_n_max = std::size_t{1} << 16;
// A probe gives up that would go deeper: 32 MiB, and some 2,000 pieces.
constexpr std::size_t stack_max = std::size_t{1} << 21;

/// A piece, by its place in the order that a probe goes by.
struct ranked {
  std::uint32_t first_section = 0;
  std::uint32_t last_section = 0;
  granules size = 0;
  granules align = 1;
  granules least_neighbor = 0;    // the least size of those in conflict with it
  std::uint32_t number = 0;       // of the piece
  std::uint32_t twin = no_rank;   // the one before it that is just alike
  std::uint32_t stack_group = 0;  // of those that are live in the same sections
  bool fixed = false;
  bool swaps = false;  // whether it may change places with its neighbor in a stack
};

/// A piece that is left, and the lowest offset that what is placed leaves it.
struct open_piece {
  granules offset = 0;
  std::uint32_t rank = 0;
};

/// The piece that was placed last. Of those that follow each comes after it: by offset, then by rank.
struct turn {
  granules offset = 0;
  std::uint32_t rank = 0;
  friend auto operator<=>(turn const&, turn const&) = default;
};

/// What is left of a node of the search, a range of the stack, and what was seen when it was looked over.
struct node_view {
  std::size_t begin = 0;
  std::size_t end = 0;
  granules window = nowhere;  // the next one must lie below
  std::uint32_t first_section = no_rank;
  std::uint32_t last_section = 0;
};

/// The one that was placed last in the sections that it has.
struct stack_top {
  granules end = nowhere;
  std::uint32_t rank = 0;
};

/// Names what is left and where it could lie, in so many bits that no two are taken for the same.
struct state_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(state_key const&, state_key const&) = default;
};

/// What is left that could not be placed after that turn. Then it cannot be placed after a later one either,
/// as all that could follow that could follow the earlier one too.
struct failure {
  state_key key;
  turn after;
};

/// Mixes bits so that each depends on all. Constants: D. Stafford's 13th variant of the finalizer of
/// MurmurHash3.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

class height_search::state {
 public:
  explicit state(search_run& run)
      : run_{&run},
        asked_{&run.asked()},
        offsets_(asked_->pieces.size()),
        pieces_(asked_->pieces.size()),
        free_from_(asked_->pieces.size(), 0),
        left_(asked_->section_n, 0),
        crossing_(asked_->section_n + std::size_t{1}, 0),
        witness_(asked_->section_n, 0),
        failures_(std::bit_ceil(std::min(failure_n_max, asked_->pieces.size() * 256 + 1))) {
    for (piece const& each : asked_->pieces) {
      for (std::uint32_t s = each.first_section; s < each.last_section; ++s) left_[s] += each.size;
      for (std::uint32_t s = each.first_section + 1; s < each.last_section; ++s) ++crossing_[s];
    }
    find_groups();
    find_least_neighbors();
  }

  outcome probe(std::span<std::uint32_t const> order, next_choice choice, granules height,
                std::uint64_t nodes_max) {
    choice_ = choice;
    height_ = height;
    nodes_end_ = run_->nodes() + nodes_max;
    ++generation_;
    rank_pieces(order);
    open_.clear();
    candidates_.clear();
    for (std::uint32_t rank = 0; rank < pieces_.size(); ++rank) {
      piece const& each = asked_->pieces[pieces_[rank].number];
      open_.push_back({each.fixed == nowhere ? 0 : each.fixed, rank});
    }
    node_view all{.begin = 0, .end = open_.size()};
    if (!look_over(all, {0, 0}) || !sections_hold(all)) return outcome::impossible;
    return split_and_solve(all, {0, 0});
  }

  std::vector<granules> const& offsets() const noexcept { return offsets_; }

 private:
  /// Numbers the pieces that have the same sections, and those of them that are alike.
  void find_groups() {
    std::vector<std::uint32_t> by_kind(asked_->pieces.size());
    std::iota(by_kind.begin(), by_kind.end(), 0U);
    const auto sections = [&](std::uint32_t i) {
      return std::pair{asked_->pieces[i].first_section, asked_->pieces[i].last_section};
    };
    const auto kind = [&](std::uint32_t i) {
      piece const& each = asked_->pieces[i];
      return std::tuple{sections(i), each.size, each.align, each.fixed};
    };
    std::ranges::sort(by_kind, [&](std::uint32_t a, std::uint32_t b) {
      return std::pair{kind(a), a} < std::pair{kind(b), b};
    });
    twin_group_.resize(by_kind.size());
    stack_group_.resize(by_kind.size());
    std::uint32_t twins = 0;
    std::uint32_t stacks = 0;
    for (std::size_t at = 0; at < by_kind.size(); ++at) {
      if (at != 0 && kind(by_kind[at]) != kind(by_kind[at - 1])) ++twins;
      if (at != 0 && sections(by_kind[at]) != sections(by_kind[at - 1])) ++stacks;
      twin_group_[by_kind[at]] = twins;
      stack_group_[by_kind[at]] = stacks;
    }
    stack_tops_.resize(stacks + std::size_t{1});
  }

  void find_least_neighbors() {
    struct two_least {
      granules least = nowhere;
      granules second = nowhere;
    };
    std::vector<two_least> of_section(asked_->section_n);
    for (piece const& each : asked_->pieces) {
      for (std::uint32_t s = each.first_section; s < each.last_section; ++s) {
        two_least& at = of_section[s];
        if (each.size < at.least) at = {each.size, at.least};
        else at.second = std::min(at.second, each.size);
      }
    }
    least_neighbor_.assign(asked_->pieces.size(), nowhere);
    for (std::size_t i = 0; i < asked_->pieces.size(); ++i) {
      piece const& each = asked_->pieces[i];
      for (std::uint32_t s = each.first_section; s < each.last_section; ++s) {
        two_least const& at = of_section[s];
        const granules least = at.least == each.size ? at.second : at.least;
        least_neighbor_[i] = std::min(least_neighbor_[i], least);
      }
      // Without a neighbor it is alone in its sections, and nothing asks.
      if (least_neighbor_[i] == nowhere) least_neighbor_[i] = 0;
    }
  }

  void rank_pieces(std::span<std::uint32_t const> order) {
    std::vector<std::uint32_t> newest(order.size(), no_rank);
    for (std::uint32_t rank = 0; rank < order.size(); ++rank) {
      const std::uint32_t i = order[rank];
      piece const& each = asked_->pieces[i];
      const bool fixed = each.fixed != nowhere;
      pieces_[rank] = {.first_section = each.first_section,
                       .last_section = each.last_section,
                       .size = each.size,
                       .align = each.align,
                       .least_neighbor = least_neighbor_[i],
                       .number = i,
                       .twin = fixed ? no_rank : newest[twin_group_[i]],
                       .stack_group = stack_group_[i],
                       .fixed = fixed,
                       .swaps = !fixed && each.align == 1};
      newest[twin_group_[i]] = rank;
    }
    std::ranges::fill(stack_tops_, stack_top{});
  }

  /// The lowest offset at which it can still be placed. One whose turn has passed must first be raised by a
  /// neighbor that comes later.
  [[nodiscard]] granules free_from(open_piece at, turn last) const {
    if (turn{at.offset, at.rank} >= last) return at.offset;
    return last.offset + pieces_[at.rank].least_neighbor;
  }

  /// Whether two that have the same sections would lie on each other in the wrong order.
  [[nodiscard]] bool stacked_wrongly(open_piece at) const {
    ranked const& each = pieces_[at.rank];
    stack_top const& top = stack_tops_[each.stack_group];
    return top.end == at.offset && at.rank < top.rank && each.swaps && pieces_[top.rank].swaps;
  }

  /// Notes how low each of `node` can still be placed. @return whether all can be, below `height_`.
  bool look_over(node_view& node, turn last) {
    node.window = nowhere;
    node.first_section = no_rank;
    node.last_section = 0;
    for (std::size_t at = node.begin; at < node.end; ++at) {
      if (!look_at(open_[at], node, last)) return false;
    }
    return true;
  }

  bool look_at(open_piece each, node_view& node, turn last) {
    ranked const& shape = pieces_[each.rank];
    const granules from = free_from(each, last);
    free_from_[each.rank] = from;
    node.window = std::min(node.window, each.offset + shape.size);
    node.first_section = std::min(node.first_section, shape.first_section);
    node.last_section = std::max(node.last_section, shape.last_section);
    return from + shape.size <= height_;
  }

  /// Places what is left of a node, whose sections are connected and were looked over, after that turn.
  outcome solve(node_view const& node, turn last) {
    if (node.end - node.begin == 1) {
      open_piece const& only = open_[node.begin];
      offsets_[pieces_[only.rank].number] = only.offset;
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
    ranked const& shape = pieces_[rank];
    return shape.first_section <= section && section < shape.last_section && free_from_[rank] != nowhere &&
           free_from_[rank] + left_[section] <= height_;
  }

  /// Whether the section has one left that is low enough for all that is left in it. The one that was found
  /// last is asked first; mostly it still is.
  bool section_holds(std::uint32_t section, node_view const& node) {
    if (left_[section] == 0 || section_holds_with(section, witness_[section])) return true;
    for (std::size_t at = node.begin; at < node.end; ++at) {
      if (!section_holds_with(section, open_[at].rank)) continue;
      witness_[section] = open_[at].rank;
      return true;
    }
    return false;
  }

  /// Whether all sections of a node hold. The one that failed last is asked first.
  bool sections_hold(node_view const& node) {
    if (node.first_section <= suspect_ && suspect_ < node.last_section && !section_holds(suspect_, node))
      return false;
    for (std::uint32_t section = node.first_section; section < node.last_section; ++section) {
      if (section_holds(section, node)) continue;
      suspect_ = section;
      return false;
    }
    return true;
  }

  [[nodiscard]] state_key key_of(node_view const& node) const {
    state_key key{.low = generation_, .high = generation_};
    for (std::size_t at = node.begin; at < node.end; ++at) {
      open_piece const& each = open_[at];
      const std::uint64_t who = std::uint64_t{each.rank} << 1U | std::uint64_t{stacked_wrongly(each)};
      const std::uint64_t bits = mixed(mixed(who + 1) + each.offset);
      key.low += bits;
      key.high += mixed(bits ^ 0x9e3779b97f4a7c15U);
    }
    return key;
  }

  /// Those that may be next. @return where in `candidates_` they begin.
  std::size_t list_candidates(node_view const& node, turn last) {
    // None may be so high that the fullest section could not hold what is left in it.
    granules most_left = 0;
    for (std::uint32_t section = node.first_section; section < node.last_section; ++section)
      most_left = std::max(most_left, left_[section]);
    const granules highest = std::min(node.window - 1, height_ - most_left);
    const std::size_t first = candidates_.size();
    for (std::size_t at = node.begin; at < node.end; ++at) {
      open_piece const& each = open_[at];
      if (each.offset > highest || turn{each.offset, each.rank} < last) continue;
      const std::uint32_t twin = pieces_[each.rank].twin;
      if (twin != no_rank && free_from_[twin] != nowhere) continue;
      if (stacked_wrongly(each)) continue;
      candidates_.push_back(each);
    }
    if (choice_ == next_choice::lowest) {
      std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(first), candidates_.end(),
                [](open_piece a, open_piece b) { return turn{a.offset, a.rank} < turn{b.offset, b.rank}; });
    }
    return first;
  }

  outcome try_candidates(node_view const& node, turn last) {
    const std::size_t first = list_candidates(node, last);
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
  outcome place(node_view const& node, open_piece next) {
    const std::size_t begin = open_.size();
    if (!run_->count() || !run_->spend(node.end - node.begin) || run_->nodes() > nodes_end_ ||
        begin + (node.end - node.begin) > stack_max)
      return outcome::unknown;
    ranked const& shape = pieces_[next.rank];
    offsets_[shape.number] = next.offset;
    node_view child{.begin = begin};
    outcome result = outcome::impossible;
    if (!push_others(node, next, child)) {
      open_.resize(begin);
      return result;
    }
    stack_top& stack = stack_tops_[shape.stack_group];
    const stack_top was = std::exchange(stack, {next.offset + shape.size, next.rank});
    for (std::uint32_t s = shape.first_section; s < shape.last_section; ++s) left_[s] -= shape.size;
    if (sections_hold(child)) {
      bool split = child.begin == child.end;
      for (std::uint32_t s = shape.first_section + 1; s < shape.last_section; ++s)
        split |= --crossing_[s] == 0;
      const turn now{next.offset, next.rank};
      result = split ? split_and_solve(child, now) : solve(child, now);
      for (std::uint32_t s = shape.first_section + 1; s < shape.last_section; ++s) ++crossing_[s];
    }
    for (std::uint32_t s = shape.first_section; s < shape.last_section; ++s) left_[s] += shape.size;
    stack = was;
    open_.resize(begin);
    return result;
  }

  /// Puts what is left of a node when `next` is placed onto the stack, and looks it over.
  /// @return whether all of it can still be placed.
  bool push_others(node_view const& node, open_piece next, node_view& child) {
    ranked const& shape = pieces_[next.rank];
    const granules top = next.offset + shape.size;
    const turn now{next.offset, next.rank};
    open_.resize(child.begin + (node.end - node.begin) - 1);
    child.end = child.begin;
    free_from_[next.rank] = nowhere;
    for (std::size_t at = node.begin; at < node.end; ++at) {
      open_piece each = open_[at];
      if (each.rank == next.rank) continue;
      ranked const& other = pieces_[each.rank];
      if (other.first_section < shape.last_section && shape.first_section < other.last_section &&
          each.offset < top) {
        if (other.fixed) return false;
        each.offset = aligned_up(top, other.align);
      }
      open_[child.end++] = each;
      if (!look_at(each, child, now)) return false;
    }
    return true;
  }

  /// Places what is left of a node, each connected part of the sections by itself, small ones first.
  outcome split_and_solve(node_view const& node, turn last) {
    std::vector<std::uint32_t> cuts;
    for (std::uint32_t s = node.first_section + 1; s < node.last_section; ++s) {
      if (crossing_[s] == 0) cuts.push_back(s);
    }
    std::vector<std::vector<open_piece>> parts(cuts.size() + 1);
    for (std::size_t at = node.begin; at < node.end; ++at) {
      const std::uint32_t section = pieces_[open_[at].rank].first_section;
      parts[static_cast<std::size_t>(std::ranges::upper_bound(cuts, section) - cuts.begin())].push_back(
          open_[at]);
    }
    std::ranges::sort(parts, [](auto const& a, auto const& b) {
      return !a.empty() && (b.empty() || std::pair{a.size(), a[0].rank} < std::pair{b.size(), b[0].rank});
    });
    for (auto const& part : parts) {
      if (part.empty()) break;
      open_.resize(node.begin);
      open_.insert(open_.end(), part.begin(), part.end());
      node_view view{.begin = node.begin, .end = open_.size()};
      const outcome result = look_over(view, last) ? solve(view, last) : outcome::impossible;
      if (result != outcome::found) return result;
    }
    return outcome::found;
  }

  search_run* run_;
  problem const* asked_;
  std::vector<granules> offsets_;           // by the number of the piece, where it was placed last
  std::vector<ranked> pieces_;              // in the probe's order
  std::vector<granules> least_neighbor_;    // by number
  std::vector<std::uint32_t> twin_group_;   // by number
  std::vector<std::uint32_t> stack_group_;  // by number
  std::vector<stack_top> stack_tops_;       // by group
  std::vector<granules> free_from_;         // by rank, of those left; nowhere: it is placed
  std::vector<granules> left_;              // by section, the sizes of those left
  std::vector<std::uint32_t> crossing_;  // by section, how many of those left it shares with the one before
  std::vector<std::uint32_t> witness_;   // by section, the rank of one that was low enough
  std::vector<open_piece> open_;         // a stack: what is left of each node on the way, one after the other
  std::vector<open_piece> candidates_;   // a stack, likewise
  std::vector<failure> failures_;
  std::uint64_t generation_ = 0;  // of the probe: what failed in another one says nothing here
  std::uint32_t suspect_ = 0;     // the section that failed last
  next_choice choice_ = next_choice::lowest;
  granules height_ = 0;
  std::uint64_t nodes_end_ = 0;
};

height_search::height_search(search_run& run) : state_{std::make_unique<state>(run)} {}
height_search::~height_search() = default;

outcome height_search::probe(std::span<std::uint32_t const> order, next_choice choice, granules height,
                             std::uint64_t nodes_max) {
  return state_->probe(order, choice, height, nodes_max);
}

std::vector<granules> const& height_search::offsets() const noexcept { return state_->offsets(); }

}  // namespace tidemark::detail::planning
