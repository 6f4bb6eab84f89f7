// SPDX-License-Identifier: Apache-2.0
#include "plan_climb.hpp"

#include <algorithm>
#include <utility>

#include "plan_space.hpp"

namespace tidemark::detail::planning {

hill_climb::hill_climb(search_run& run)
    : run_{&run},
      asked_{&run.asked()},
      random_{run.seed()},
      offsets_(asked_->pieces.size()),
      tried_offsets_(asked_->pieces.size()) {
  for (std::uint32_t i = 0; i < asked_->pieces.size(); ++i) {
    if (asked_->pieces[i].fixed != nowhere) fixed_.push_back(i);
  }
  std::ranges::sort(fixed_, [&](std::uint32_t a, std::uint32_t b) {
    return std::pair{asked_->pieces[a].fixed, a} < std::pair{asked_->pieces[b].fixed, b};
  });
  // In both, because they are swapped.
  for (std::uint32_t i : fixed_) offsets_[i] = tried_offsets_[i] = asked_->pieces[i].fixed;
}

void hill_climb::climb(std::span<std::vector<std::uint32_t> const> orders, std::uint64_t nodes) {
  const std::uint64_t end = run_->nodes() + nodes;
  if (order_.empty()) {
    for (auto const& order : orders) {
      tried_ = order;
      if (run_->over()) return;
      if (lay_out(lowest_.height == nowhere ? nowhere : lowest_.height - 1)) take_tried();
    }
  }
  while (!run_->over() && run_->nodes() < end && !order_.empty()) {
    const granules height_max = height_ + next_slack();
    tried_ = order_;
    change_order();
    if (!run_->over() && lay_out(height_max)) take_tried();
  }
}

/// Goes on from the layout that was made.
void hill_climb::take_tried() {
  std::swap(order_, tried_);
  std::swap(offsets_, tried_offsets_);
  height_ = tried_height_;
  if (height_ >= lowest_.height) return;
  lowest_ = {.offsets = offsets_, .height = height_};
  lowest_order_ = order_;
}

/// How much higher than the layout that it is at the next may be. The first round allows nothing. Each of the
/// others begins again at the lowest layout, is twice as long as the one before, and allows less and less.
granules hill_climb::next_slack() {
  constexpr double height_part = 1.0 / 256;  // that a round allows at most when it begins
  if (round_tries_left_ == 0) {
    if (!first_round_) round_tries_ *= 2;
    first_round_ = false;
    round_tries_left_ = round_tries_;
    order_ = lowest_order_;
    offsets_ = lowest_.offsets;
    height_ = lowest_.height;
  }
  --round_tries_left_;
  if (first_round_) return 0;
  const double left = static_cast<double>(round_tries_left_) / static_cast<double>(round_tries_);
  return random_() % (static_cast<granules>(static_cast<double>(height_) * height_part * left) + 1);
}

bool hill_climb::in_conflict(std::uint32_t i, std::uint32_t j) const {
  piece const& one = asked_->pieces[i];
  piece const& other = asked_->pieces[j];
  if (asked_->graph) return std::ranges::binary_search(asked_->neighbors_of(i), j);
  return one.first_section < other.last_section && other.first_section < one.last_section;
}

/// The lowest offset from `offset` on that is clear of the fixed pieces.
granules hill_climb::around_fixed(std::uint32_t i, granules offset) const {
  piece const& each = asked_->pieces[i];
  offset = aligned_up(offset, each.align);
  for (std::uint32_t j : fixed_) {
    piece const& other = asked_->pieces[j];
    if (other.fixed + other.size <= offset || !in_conflict(i, j)) continue;
    if (offset + each.size <= other.fixed) break;
    offset = aligned_up(other.fixed + other.size, each.align);
  }
  return offset;
}

/// @return false where one of those that are left would then end above `height_max`.
bool hill_climb::raise(std::uint32_t placed, granules height_max) {
  const granules top = tried_offsets_[placed] + asked_->pieces[placed].size;
  for (open_piece& each : left_) {
    if (each.offset >= top || !in_conflict(placed, each.number)) continue;
    each.offset = around_fixed(each.number, top);
    if (each.offset + asked_->pieces[each.number].size > height_max) return false;
  }
  return true;
}

/// Makes a layout of `tried_`, and offers it. @return false where it would be higher than `height_max`, or
/// the run was cut off.
bool hill_climb::lay_out(granules height_max) {
  left_.clear();
  tried_height_ = 0;
  for (std::uint32_t i : fixed_)
    tried_height_ = std::max(tried_height_, asked_->pieces[i].fixed + asked_->pieces[i].size);
  for (std::uint32_t i : tried_) {
    if (asked_->pieces[i].fixed == nowhere) left_.push_back({around_fixed(i, 0), i});
  }
  while (!left_.empty()) {
    const auto next = std::ranges::min_element(left_, {}, &open_piece::offset);
    const open_piece placed = *next;
    left_.erase(next);
    tried_offsets_[placed.number] = placed.offset;
    tried_height_ = std::max(tried_height_, placed.offset + asked_->pieces[placed.number].size);
    if (!run_->count() || !run_->spend(left_.size() * 2) || tried_height_ > height_max) return false;
    if (!raise(placed.number, height_max)) return false;
  }
  run_->offer(tried_offsets_, tried_height_);
  return true;
}

/// The pieces that end at the top, and those on which one of them lies, and so on down, while they are few.
void hill_climb::find_supports() {
  supports_.clear();
  supporting_.assign(asked_->pieces.size(), false);
  const auto add = [&](std::uint32_t i) {
    supporting_[i] = true;
    supports_.push_back(i);
  };
  const auto end_of = [&](std::uint32_t i) { return offsets_[i] + asked_->pieces[i].size; };
  for (std::uint32_t i : order_) {
    if (end_of(i) == height_) add(i);
  }
  std::size_t looked_at = 0;
  // What is cut off here goes on with those that it has: the next layout is not finished anyway.
  while (looked_at < supports_.size() && supports_.size() < supports_max && run_->spend(order_.size() * 2)) {
    const std::uint32_t above = supports_[looked_at++];
    for (std::uint32_t i : order_) {
      if (!supporting_[i] && aligned_up(end_of(i), asked_->pieces[above].align) == offsets_[above] &&
          in_conflict(above, i))
        add(i);
    }
  }
}

/// Moves a piece to some other place, or lets it change places: one of the supports, mostly.
void hill_climb::change_order() {
  find_supports();
  std::vector<std::uint32_t> const& from_these = random_below(8) == 0 ? tried_ : supports_;
  const std::uint32_t moved = from_these[random_below(from_these.size())];
  const auto from = std::ranges::find(tried_, moved);
  const auto to = tried_.begin() + static_cast<std::ptrdiff_t>(random_below(tried_.size()));
  if (random_below(2) == 0) std::iter_swap(from, to);
  else if (from < to) std::rotate(from, std::next(from), std::next(to));
  else std::rotate(to, from, std::next(from));
}

}  // namespace tidemark::detail::planning
