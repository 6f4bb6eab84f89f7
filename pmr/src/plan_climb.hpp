// SPDX-License-Identifier: Apache-2.0
// The stage of make_plan that changes an order at random, and keeps what is no worse, or not much.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "plan_run.hpp"

namespace tidemark::detail::planning {

/// A hill climb over orders of the pieces.
///
/// Of an order a layout is made from below: placed next is the piece that can lie lowest above what is
/// placed, and of equals the first of the order. A step moves a piece in the order: mostly one that holds up
/// the top, through those that lie on each other. At first it goes on only from what is no higher, and then
/// in rounds that take what is a little higher too. What they take depends on the number of tries alone.
///
/// Memory is linear. A layout takes O(n^2) steps.
class hill_climb {
 public:
  /// Fixed pieces lie where they must, and the others around them.
  explicit hill_climb(search_run& run);

  /// Whether its steps are short enough for the limits of a run to be looked at often: not where many are
  /// fixed.
  [[nodiscard]] bool quick() const noexcept {
    return fixed_.size() * asked_->pieces.size() <= fixed_pairs_max;
  }

  /// Goes on until so many nodes were placed, or the run is over. The first call tries `orders` first.
  void climb(std::span<std::vector<std::uint32_t> const> orders, std::uint64_t nodes);

 private:
  struct open_piece {
    granules offset = 0;
    std::uint32_t number = 0;
  };

  static constexpr std::size_t fixed_pairs_max = std::size_t{1} << 18;
  static constexpr std::size_t supports_max = 256;

  bool lay_out(granules height_max);
  [[nodiscard]] bool in_conflict(std::uint32_t i, std::uint32_t j) const;
  [[nodiscard]] bool raise(std::uint32_t placed, granules height_max);
  void take_tried();
  [[nodiscard]] granules next_slack();
  [[nodiscard]] granules around_fixed(std::uint32_t i, granules offset) const;
  void find_supports();
  void change_order();
  std::size_t random_below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  search_run* run_;
  problem const* asked_;
  std::mt19937_64 random_;
  std::vector<std::uint32_t> fixed_;  // those that are fixed, by their offset
  std::vector<std::uint32_t> order_;  // of the layout it is at
  std::vector<std::uint32_t> tried_;  // the one that is tried
  granules height_ = nowhere;         // of the layout it is at
  std::vector<granules> offsets_;     // of that layout
  layout lowest_;                     // of all it was at
  std::vector<std::uint32_t> lowest_order_;
  bool first_round_ = true;
  std::uint64_t round_tries_ = 1024;
  std::uint64_t round_tries_left_ = round_tries_;
  std::vector<granules> tried_offsets_;
  granules tried_height_ = 0;
  std::vector<open_piece> left_;         // what is left to place, in order
  std::vector<std::uint32_t> supports_;  // the pieces that hold up the top, and those that hold up them
  std::vector<bool> supporting_;
};

}  // namespace tidemark::detail::planning
