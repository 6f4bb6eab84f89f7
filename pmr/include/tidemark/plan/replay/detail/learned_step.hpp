// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_recorder`: the requests of one step; `learned_step`: what a kind of step has requested so far; and
/// `plan_of`: the plan of that. Own their records.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// A request that no plan has.
inline constexpr std::size_t no_request = (std::numeric_limits<std::size_t>::max)();

/// A request of a step, and when its block was allocated and deallocated, counted in requests.
struct recorded_request {
  std::uint64_t born = 0;
  std::uint64_t died = 0;  // 0: it is live
  std::size_t bytes = 0;
  std::size_t align = 1;
  std::size_t request = no_request;  // the request of the plan that it is
  bool outlived = false;             // it was live at the end of its step
};

/// Records the blocks of one step: those of the fallback when they are allocated and deallocated, those that
/// a plan served at the end.
///
/// One thread at a time.
class step_recorder {
 public:
  /// Forgets the step.
  void clear() noexcept {
    requests_.clear();
    if (!live_.empty()) live_.clear();  // takes time for each bucket
    earlier_.clear();
    is_complete_ = true;
  }
  /// A block of the fallback. Without memory to record it the record is not complete.
  void on_allocate(void const* block, recorded_request const& made) noexcept;
  /// A block of the fallback: of this step, or an earlier block.
  void on_deallocate(void const* block, std::size_t bytes, std::uint64_t now) noexcept;
  /// A block of an earlier step is deallocated in this step.
  void on_deallocate_earlier(std::size_t bytes, std::uint64_t now) noexcept;
  /// The step ends; deaths are still recorded, until `clear()`.
  void end_step() noexcept {
    for (recorded_request& made : requests_) made.outlived = made.died == 0;
  }
  /// A block that a plan served. @throws std::bad_alloc
  void add(recorded_request const& made) { requests_.push_back(made); }
  /// Sizes of blocks of earlier steps that died in this step, and when.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::uint64_t>> const& earlier() const noexcept {
    return earlier_;
  }
  /// The requests so far: first the requests that the fallback served, in the order of their births.
  [[nodiscard]] std::span<recorded_request const> requests() const noexcept { return requests_; }
  /// The requests in the order of their births; later deaths are not recorded. @throws std::bad_alloc if the
  /// record is not complete.
  [[nodiscard]] std::span<recorded_request> in_order();

 private:
  std::vector<recorded_request> requests_;
  std::unordered_map<void const*, std::size_t> live_;  // blocks of the fallback: index in `requests_`
  std::vector<std::pair<std::size_t, std::uint64_t>> earlier_;
  bool is_complete_ = true;
};

/// The knowledge of the n-th request of a kind of step, from all steps that were recorded in part.
struct learned_request {
  std::size_t min_bytes = 0, max_bytes = 0;
  std::size_t align = 1;
  std::uint64_t upper = 0;  // when its block dies, in requests of the step; above all if it outlives the step
  std::size_t slot_count = 1;  // of a block that outlives the step: how many are live at once
  bool is_optional = false;    // a step that followed the plan lacked it

  void add(std::size_t bytes, std::size_t alignment) noexcept {
    min_bytes = (std::min)(min_bytes, bytes);
    max_bytes = (std::max)(max_bytes, bytes);
    align = (std::max)(align, alignment);
  }
  /// True if a request of this size may be this request: within an eighth of the sizes seen.
  [[nodiscard]] bool resembles(std::size_t bytes) const noexcept {
    const std::size_t slack = max_bytes / 8;
    return bytes <= max_bytes + slack && bytes >= min_bytes - (std::min)(min_bytes, slack);
  }
  /// Bytes that a plan has for the request: the largest size, and headroom if sizes differ. Headroom is their
  /// spread, at least 1/64, twice as much for each `replan`, and at most 1/16.
  [[nodiscard]] std::size_t planned_bytes(std::size_t replans) const noexcept {
    if (min_bytes == max_bytes) return max_bytes;
    const std::size_t spread = (std::max)(max_bytes - min_bytes, max_bytes / 64);
    return max_bytes + (std::min)(spread << std::min<std::size_t>(replans, 2), max_bytes / 16);
  }
};

/// The requests of a kind of step, in order.
using learned_step = std::vector<learned_request>;

/// Learns the requests of a recorded step. @param before knowledge of the requests of a plan; empty if there
/// is no plan
/// @throws std::bad_alloc
[[nodiscard]] learned_step learn(step_recorder& step, learned_step const& before = {});
/// Learns the requests of a plan. @throws std::bad_alloc
[[nodiscard]] learned_step learn(step_plan const& plan);

/// How a step is planned.
struct plan_terms {
  std::size_t alignment = 256;  // of all blocks, at least
  std::size_t replans = 0;      // how often the step was planned anew
  /// Offsets that no block may have which dies within the step, in order, apart from each other, at multiples
  /// of the alignment.
  std::span<byte_range const> obstacles{};
  std::size_t zone_end = 0;   // obstacles below it are in no block's way
  std::size_t max_slots = 1;  // of a request
};

/// The plan of a step: below all others lie the blocks that outlive it. @throws as `make_plan`
[[nodiscard]] step_plan plan_of(learned_step const& step, plan_terms const& terms);

}  // namespace tidemark::detail
