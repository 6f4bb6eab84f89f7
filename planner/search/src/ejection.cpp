// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Ejection".
// Lowers the best layout locally. Buffers that end above a slightly lower height are taken out and put back,
// the largest first. Each goes to the offset at which the buffers in its way have the least weight. These
// buffers are taken out and put back in turn. A buffer's weight grows with each move.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

/// Finds the buffers in conflict with a given buffer in O(k + log n) for k conflicts, in linear memory.
class conflict_index {
 public:
  explicit conflict_index(problem const& instance) : instance_{&instance} {
    if (instance.graph) return;
    by_begin_ = numbers_by(instance.buffers.size(), [&](std::uint32_t i) { return lifespan(i).begin; });
    leaf_n_ = std::bit_ceil(std::max<std::size_t>(by_begin_.size(), 1));
    latest_end_.resize(leaf_n_ * 2);
    for (std::size_t k = 0; k < by_begin_.size(); ++k) latest_end_[leaf_n_ + k] = lifespan(by_begin_[k]).end;
    for (std::size_t node = leaf_n_ - 1; node != 0; --node)
      latest_end_[node] = std::max(latest_end_[node * 2], latest_end_[node * 2 + 1]);
  }

  /// Calls `visit` with the number of each buffer in conflict. For lifetimes also with i itself.
  template <class Visit>
  void each(std::uint32_t i, Visit visit) const {
    if (instance_->graph) {
      for (std::uint32_t other : instance_->neighbors_of(i)) visit(other);
      return;
    }
    each_in(1, {0, static_cast<std::uint32_t>(leaf_n_)}, lifespan(i), visit);
  }

 private:
  [[nodiscard]] section_range lifespan(std::uint32_t i) const { return instance_->buffers[i].lifespan; }

  /// Visits the buffers at `places` of `by_begin_` that are live in one of the sections. `node` is the tree's
  /// node of these places.
  template <class Visit>
  void each_in(std::size_t node, section_range places, section_range sections, Visit& visit) const {
    const bool all_end_before = latest_end_[node] <= sections.begin;  // or there are none
    if (all_end_before || lifespan(by_begin_[places.begin]).begin >= sections.end) return;
    if (node >= leaf_n_) return visit(by_begin_[places.begin]);
    const std::uint32_t middle = places.begin + (places.end - places.begin) / 2;
    each_in(node * 2, {places.begin, middle}, sections, visit);
    each_in(node * 2 + 1, {middle, places.end}, sections, visit);
  }

  problem const* instance_;
  order by_begin_;
  std::size_t leaf_n_ = 0;
  std::vector<std::uint32_t> latest_end_;  // a tree over `by_begin_`; node k has the children 2k and 2k + 1
};

/// Takes buffers out of the best layout that end above a slightly lower height. Puts them back at the offset
/// with the least weight to remove, the largest first. (Ejection chains: F. Glover, 1996.) Success gives a
/// lower layout. After too many tries the next height is nearer to the best.
///
/// The weight of a buffer is its area, and grows with each move, also across tries. A buffer that does not
/// find a place soon thus stays where it is, and others are tried. Fixed buffers do not move. Memory is
/// linear.
class ejector {
 public:
  explicit ejector(solver_context& context)
      : context_{&context},
        instance_{&context.instance()},
        conflicts_{*instance_},
        offsets_(instance_->buffers.size()),
        weights_(instance_->buffers.size()) {
    restore_weights();
  }

  /// Continues for about the time of placing `nodes` buffers in new layouts.
  void eject(std::uint64_t nodes) {
    const std::uint64_t end = steps_ + nodes * node_steps;
    bool may_continue = true;
    while (may_continue && !context_->done() && steps_ < end) {
      if (out_.empty() || context_->best().height < height_) {
        may_continue = begin_try();
      } else if (tries_left_-- == 0 || !reinsert_largest()) {
        abort_try();
      } else {
        may_continue = context_->count_node(around_.size() * 16);
        if (out_.empty()) finish_try();
      }
    }
  }

 private:
  /// The bytes of a buffer in conflict.
  struct taken {
    range bytes;
    std::uint32_t number = 0;
  };
  /// The cost of an offset: the number of fixed buffers in the way first, then the sum of weights.
  struct cost {
    std::size_t fixed = 0;
    double weight = 0;
    friend auto operator<=>(cost const&, cost const&) = default;
  };
  using heaviest_first = std::priority_queue<std::pair<double, std::uint32_t>>;

  static constexpr std::uint64_t node_steps = 64;
  static constexpr std::size_t min_tries = 3000;
  static constexpr std::size_t tries_each = 20;  // for each buffer taken out at the start
  // Fractions of the distance between the height and the target.
  static constexpr double first_drop = 0.1, min_drop = 0.0001, max_drop = 0.5;
  // Weights that grew by more than this factor make sums inexact; then all weights are reset.
  static constexpr double max_growth = 1 << 20;

  [[nodiscard]] double area_of(std::uint32_t i) const {
    return instance_->buffers[i].duration * static_cast<double>(instance_->buffers[i].size);
  }

  void restore_weights() {
    for (std::uint32_t i = 0; i < weights_.size(); ++i) weights_[i] = area_of(i);
  }

  void unplace(std::uint32_t i) {
    offsets_[i] = no_offset;
    out_.emplace(area_of(i), i);
  }

  void increase_weight(std::uint32_t i, double factor) {
    weights_[i] *= factor;
    grown_too_much_ = grown_too_much_ || weights_[i] > area_of(i) * max_growth;
  }

  /// @return true if the search continues
  bool begin_try() {
    height_ = context_->best().height;
    offsets_ = context_->best().offsets;
    const double gap = static_cast<double>(height_ - context_->target());
    max_top_ = height_ - std::max<offset_type>(1, static_cast<offset_type>(gap * drop_));
    out_ = {};
    for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
      if (offsets_[i] + instance_->buffers[i].size > max_top_) unplace(i);
    }
    tries_left_ = min_tries + tries_each * out_.size();
    if (std::exchange(grown_too_much_, false)) restore_weights();
    steps_ += offsets_.size();
    return context_->count_node(offsets_.size());  // counts even if the try puts nothing back
  }

  void abort_try() {
    out_ = {};
    drop_ = std::max(drop_ * 0.6, min_drop);
  }

  void finish_try() {
    context_->offer(offsets_);
    drop_ = std::min(drop_ * 1.2, max_drop);
  }

  /// Puts the largest buffer back. @return false if no offset avoids the fixed buffers
  bool reinsert_largest() {
    const std::uint32_t i = out_.top().second;
    out_.pop();
    read_around(i);
    const offset_type offset = cheapest_offset(i);
    if (offset == no_offset) return false;
    const range bytes{offset, offset + instance_->buffers[i].size};
    for (taken const& each : around_) {
      if (!each.bytes.overlaps(bytes)) continue;
      unplace(each.number);
      increase_weight(each.number, 1.3);
    }
    offsets_[i] = offset;
    increase_weight(i, 1.1);
    return true;
  }

  void read_around(std::uint32_t i) {
    around_.clear();
    conflicts_.each(i, [&](std::uint32_t other) {
      if (offsets_[other] == no_offset) return;
      around_.push_back({{offsets_[other], offsets_[other] + instance_->buffers[other].size}, other});
    });
    by_end_ = around_;
    std::ranges::sort(around_, {},
                      [](taken const& each) { return std::pair{each.bytes.begin, each.number}; });
    std::ranges::sort(by_end_, {}, [](taken const& each) { return std::pair{each.bytes.end, each.number}; });
    steps_ += around_.size() + 1;
  }

  /// Returns the offset with the least cost; a gap costs nothing. Looks at offset 0, on top of and below each
  /// buffer in conflict, and below the height.
  [[nodiscard]] offset_type cheapest_offset(std::uint32_t i) {
    buffer const& placed = instance_->buffers[i];
    found_ = no_offset;
    found_cost_ = {std::numeric_limits<std::size_t>::max(), 0};
    try_offsets(i, by_end_.size() + 1,
                [&](std::size_t k) { return k == 0 ? 0 : align_up(by_end_[k - 1].bytes.end, placed.align); });
    if (found_cost_ == cost{}) return found_;
    try_offsets(i, around_.size() + 1, [&](std::size_t k) {
      const offset_type end = k == around_.size() ? max_top_ : around_[k].bytes.begin;
      return end < placed.size ? no_offset : (end - placed.size) & ~(placed.align - 1);
    });
    return found_cost_.fixed == 0 ? found_ : no_offset;
  }

  /// Looks at offsets in rising order. Offsets of `no_offset` come first and are skipped.
  template <class OffsetAt>
  void try_offsets(std::uint32_t i, std::size_t count, OffsetAt offset_at) {
    const offset_type size = instance_->buffers[i].size;
    cost now;
    std::size_t begun = 0, ended = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const offset_type offset = offset_at(k);
      if (offset == no_offset) continue;
      if (offset + size > max_top_) return;
      for (; begun < around_.size() && around_[begun].bytes.begin < offset + size; ++begun) {
        now.fixed += instance_->buffers[around_[begun].number].is_fixed() ? 1 : 0;
        now.weight += weights_[around_[begun].number];
      }
      for (; ended < by_end_.size() && by_end_[ended].bytes.end <= offset; ++ended) {
        now.fixed -= instance_->buffers[by_end_[ended].number].is_fixed() ? 1 : 0;
        now.weight -= weights_[by_end_[ended].number];
      }
      if (begun == ended) now = {};
      if (now >= found_cost_) continue;
      found_ = offset;
      found_cost_ = now;
    }
  }

  solver_context* context_;
  problem const* instance_;
  conflict_index conflicts_;
  std::vector<offset_type> offsets_;  // no_offset: taken out
  std::vector<double> weights_;
  heaviest_first out_;         // by area
  std::vector<taken> around_;  // buffers in conflict with the current one, by begin
  std::vector<taken> by_end_;
  offset_type found_ = no_offset;
  cost found_cost_;
  offset_type height_ = no_offset;  // of the layout at the start of the try
  offset_type max_top_ = 0;
  double drop_ = first_drop;
  bool grown_too_much_ = false;
  std::size_t tries_left_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace

endless_stage eject_high_ones(solver_context& context) {
  return [stage = std::make_shared<ejector>(context)](std::uint64_t nodes) { stage->eject(nodes); };
}

}  // namespace tidemark::planner::detail
