// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Climb".
// The stage of make_plan that changes an order at random.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "space.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

/// A hill climb over orders of the buffers.
///
/// Of an order a layout is made from below: placed next is the buffer that can lie lowest above what is
/// placed, and of equals the first of the order. A step moves a buffer in the order: mostly one that
/// holds up the top, through those that lie on each other. The first round accepts only what is no
/// higher, the others what is a little higher too. What they accept depends on the number of tries alone.
/// Fixed buffers lie where they must, and the others around them.
///
/// Memory is linear. A layout takes O(n^2) steps.
class climber {
 public:
  climber(solver_context& context, std::span<order const> orders)
      : context_{&context},
        instance_{&context.instance()},
        orders_{orders},
        random_{context.seed()},
        fixed_{numbers_by(instance_->buffers.size(), [&](std::uint32_t i) { return buffer_at(i).fixed; })} {
    std::erase_if(fixed_, [&](std::uint32_t i) { return !buffer_at(i).is_fixed(); });
    current_.offsets.resize(instance_->buffers.size());
    for (std::uint32_t i : fixed_) current_.offsets[i] = buffer_at(i).fixed;
    tried_.offsets = current_.offsets;  // in both, because they are swapped
  }

  /// Whether its steps are short enough to check the limits often: not where many are fixed.
  [[nodiscard]] bool is_quick() const noexcept {
    return fixed_.size() * instance_->buffers.size() <= max_fixed_pairs;
  }

  /// Goes on until so many nodes were placed, or the search is done.
  void climb(std::uint64_t nodes) {
    const std::uint64_t end = context_->nodes() + nodes;
    if (current_.by.empty()) {
      for (order const& each : orders_) {
        if (context_->done()) return;
        tried_.by = each;
        if (lay_out(lowest_.height - 1)) take_tried();
      }
    }
    while (!context_->done() && context_->nodes() < end && !current_.by.empty()) {
      const offset_type max_height = current_.height + next_slack();
      tried_.by = current_.by;
      change_order();
      if (!context_->done() && lay_out(max_height)) take_tried();
    }
  }

 private:
  /// An order, and the layout that was made of it.
  struct attempt : layout {
    order by;
  };

  struct unplaced {
    offset_type offset = 0;  // the lowest that it can have
    std::uint32_t number = 0;
  };

  static constexpr std::size_t max_fixed_pairs = std::size_t{1} << 18;
  static constexpr std::size_t max_supports = 256;

  /// Goes on from the layout that was made.
  void take_tried() {
    std::swap(current_, tried_);
    if (current_.height < lowest_.height) lowest_ = current_;
  }

  /// How much higher than the layout that it is at the next may be. The first round allows nothing. Each
  /// of the others begins again at the lowest layout, is twice as long as the one before, and allows less
  /// and less.
  [[nodiscard]] offset_type next_slack() {
    constexpr double height_part = 1.0 / 256;  // that a round allows at most when it begins
    if (round_tries_left_ == 0) {
      if (!first_round_) round_tries_ *= 2;
      first_round_ = false;
      round_tries_left_ = round_tries_;
      current_ = lowest_;
    }
    --round_tries_left_;
    if (first_round_) return 0;
    const double left = static_cast<double>(round_tries_left_) / static_cast<double>(round_tries_);
    return random_() %
           (static_cast<offset_type>(static_cast<double>(current_.height) * height_part * left) + 1);
  }

  [[nodiscard]] buffer const& buffer_at(std::uint32_t i) const { return instance_->buffers[i]; }

  [[nodiscard]] bool in_conflict(std::uint32_t i, std::uint32_t j) const {
    if (instance_->graph) return std::ranges::binary_search(instance_->neighbors_of(i), j);
    return buffer_at(i).lifespan.overlaps(buffer_at(j).lifespan);
  }

  /// The lowest offset from `offset` on that is clear of the fixed buffers.
  [[nodiscard]] offset_type around_fixed(std::uint32_t i, offset_type offset) const {
    buffer const& each = buffer_at(i);
    offset = align_up(offset, each.align);
    for (std::uint32_t j : fixed_) {
      const range taken = buffer_at(j).fixed_bytes();
      if (taken.end <= offset || !in_conflict(i, j)) continue;
      if (offset + each.size <= taken.begin) break;
      offset = align_up(taken.end, each.align);
    }
    return offset;
  }

  /// @return false where one of those that are left would then end above `max_height`.
  [[nodiscard]] bool raise(std::uint32_t placed, offset_type max_height) {
    const offset_type top = tried_.offsets[placed] + buffer_at(placed).size;
    for (unplaced& each : left_) {
      if (each.offset >= top || !in_conflict(placed, each.number)) continue;
      each.offset = around_fixed(each.number, top);
      if (each.offset + buffer_at(each.number).size > max_height) return false;
    }
    return true;
  }

  /// Makes a layout of `tried_`, and offers it. @return false where it would be higher than `max_height`,
  /// or the search was cut off.
  bool lay_out(offset_type max_height) {
    left_.clear();
    tried_.height = 0;
    for (std::uint32_t i : fixed_) tried_.height = std::max(tried_.height, buffer_at(i).fixed_bytes().end);
    for (std::uint32_t i : tried_.by) {
      if (!buffer_at(i).is_fixed()) left_.push_back({around_fixed(i, 0), i});
    }
    while (!left_.empty()) {
      const auto next = std::ranges::min_element(left_, {}, &unplaced::offset);
      const unplaced placed = *next;
      left_.erase(next);
      tried_.offsets[placed.number] = placed.offset;
      tried_.height = std::max(tried_.height, placed.offset + buffer_at(placed.number).size);
      if (!context_->count_node(left_.size() * 2) || tried_.height > max_height ||
          !raise(placed.number, max_height))
        return false;
    }
    context_->offer(tried_.offsets);
    return true;
  }

  /// The buffers that end at the top, and those on which one of them lies, and so on down, while they are
  /// few.
  void find_supports() {
    supports_.clear();
    const auto end_of = [&](std::uint32_t i) { return current_.offsets[i] + buffer_at(i).size; };
    std::ranges::copy_if(current_.by, std::back_inserter(supports_),
                         [&](std::uint32_t i) { return end_of(i) == current_.height; });
    // What is cut off here goes on with those that it has: the next layout is not finished anyway.
    for (std::size_t k = 0; k < supports_.size() && supports_.size() < max_supports &&
                            context_->count_steps(current_.by.size() * 2);
         ++k) {
      const std::uint32_t above = supports_[k];
      for (std::uint32_t i : current_.by) {
        if (align_up(end_of(i), buffer_at(above).align) == current_.offsets[above] && in_conflict(above, i) &&
            std::ranges::find(supports_, i) == supports_.end())
          supports_.push_back(i);
      }
    }
  }

  /// Moves a buffer to some other place, or lets it change places: one of the supports, mostly.
  void change_order() {
    find_supports();
    order& by = tried_.by;
    order const& from_these = random_below(8) == 0 ? by : supports_;
    const std::uint32_t moved = from_these[random_below(from_these.size())];
    const auto from = std::ranges::find(by, moved);
    const auto to = by.begin() + static_cast<std::ptrdiff_t>(random_below(by.size()));
    if (random_below(2) == 0) std::iter_swap(from, to);
    else if (from < to) std::rotate(from, std::next(from), std::next(to));
    else std::rotate(to, from, std::next(from));
  }

  std::size_t random_below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  solver_context* context_;
  problem const* instance_;
  std::span<order const> orders_;
  std::mt19937_64 random_;
  order fixed_;      // those that are fixed, by offset
  attempt current_;  // that the next one begins with
  attempt tried_;
  attempt lowest_;  // so far
  bool first_round_ = true;
  std::uint64_t round_tries_ = 1024;
  std::uint64_t round_tries_left_ = round_tries_;
  std::vector<unplaced> left_;  // in order
  order supports_;              // the buffers that hold up the top, and those that hold up them
};

}  // namespace

endless_stage hill_climb(solver_context& context, std::span<order const> orders) {
  auto stage = std::make_shared<climber>(context, orders);
  if (!stage->is_quick()) return {};
  return [stage = std::move(stage)](std::uint64_t nodes) { stage->climb(nodes); };
}

}  // namespace tidemark::planner::detail
