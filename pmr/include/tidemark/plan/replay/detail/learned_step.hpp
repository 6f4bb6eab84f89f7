// SPDX-License-Identifier: Apache-2.0
/// @file
/// `step_recorder`: the requests of one step. `learned_step`: the learned requests of a kind of step.
/// `plan_of`: the plan of a learned step. Own their records.
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

/// Index of a request that is in no plan.
inline constexpr std::size_t no_request = (std::numeric_limits<std::size_t>::max)();

/// A request of a step, with the allocation and deallocation of its block in requests.
struct recorded_request {
  std::uint64_t born = 0;
  std::uint64_t died = 0;  // 0: the block is live
  std::size_t bytes = 0;
  std::size_t align = 1;
  std::size_t request = no_request;  // matching request of the plan
  bool outlived = false;             // true if the block was live at the end of its step
};

/// Records the blocks of one step. Blocks of the fallback are recorded when they are allocated and
/// deallocated, blocks of a plan at the end of the step.
///
/// Thread-safety: one thread at a time.
class step_recorder {
 public:
  /// Clears the record.
  void clear() noexcept {
    requests_.clear();
    if (!live_.empty()) live_.clear();  // takes time for each bucket
    earlier_.clear();
    is_complete_ = true;
  }
  /// Records a new block of the fallback. Without memory the record becomes incomplete.
  void on_allocate(void const* block, recorded_request const& made) noexcept;
  /// Records the death of a block of the fallback, from this step or an earlier one.
  void on_deallocate(void const* block, std::size_t bytes, std::uint64_t now) noexcept;
  /// Records the death, in this step, of a block from an earlier step.
  void on_deallocate_earlier(std::size_t bytes, std::uint64_t now) noexcept;
  /// Ends the step. Deaths are still recorded until `clear()`.
  void end_step() noexcept {
    for (recorded_request& made : requests_) made.outlived = made.died == 0;
  }
  /// Adds a block of a plan. @throws std::bad_alloc
  void add(recorded_request const& made) { requests_.push_back(made); }
  /// Returns the size and the death of each block of an earlier step that died in this step.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::uint64_t>> const& earlier() const noexcept {
    return earlier_;
  }
  /// Returns the requests: first those of the fallback, in the order of their births.
  [[nodiscard]] std::span<recorded_request const> requests() const noexcept {
    return {requests_.data(), requests_.size()};
  }
  /// Returns the requests in the order of their births; later deaths are not recorded. @throws std::bad_alloc
  /// if the record is incomplete.
  [[nodiscard]] std::span<recorded_request> in_order();

 private:
  std::vector<recorded_request> requests_;
  std::unordered_map<void const*, std::size_t> live_;  // blocks of the fallback: index in `requests_`
  std::vector<std::pair<std::size_t, std::uint64_t>> earlier_;
  bool is_complete_ = true;
};

/// Learned properties of the n-th request of a kind of step, from all recorded steps.
struct learned_request {
  std::size_t min_bytes = 0, max_bytes = 0;
  std::size_t align = 1;
  std::uint64_t upper = 0;     // death of its block in requests; above all if it outlives the step
  std::size_t slot_count = 1;  // maximum of its blocks live at once, for blocks that outlive the step
  bool is_optional = false;    // true if a step that followed the plan lacked the request

  void add(std::size_t bytes, std::size_t alignment) noexcept {
    min_bytes = (std::min)(min_bytes, bytes);
    max_bytes = (std::max)(max_bytes, bytes);
    align = (std::max)(align, alignment);
  }
  /// Returns true if a request of this size may be this request: within an eighth of the learned sizes.
  [[nodiscard]] bool resembles(std::size_t bytes) const noexcept {
    const std::size_t slack = max_bytes / 8;
    return bytes <= max_bytes + slack && bytes >= min_bytes - (std::min)(min_bytes, slack);
  }
  /// Returns the bytes of the request in a plan: the largest size, plus headroom if sizes differ. The
  /// headroom is the spread of sizes, at least 1/64, doubled for each of the first two replans, and at most
  /// 1/16.
  [[nodiscard]] std::size_t planned_bytes(std::size_t replans) const noexcept {
    if (min_bytes == max_bytes) return max_bytes;
    const std::size_t spread = (std::max)(max_bytes - min_bytes, max_bytes / 64);
    return max_bytes + (std::min)(spread << std::min<std::size_t>(replans, 2), max_bytes / 16);
  }
};

/// Requests of a kind of step, in order.
using learned_step = std::vector<learned_request>;

/// Learns the requests of a recorded step. @param before learned requests of the plan; empty without a plan
/// @throws std::bad_alloc
[[nodiscard]] learned_step learn(step_recorder& step, learned_step const& before = {});
/// Learns the requests of a plan. @throws std::bad_alloc
[[nodiscard]] learned_step learn(step_plan const& plan);

/// Conditions for the plan of a step.
struct plan_terms {
  std::size_t alignment = 256;  // minimum alignment of all blocks
  std::size_t replans = 0;      // number of earlier plans that were replaced
  /// Offsets that no block that dies within the step may use: sorted, disjoint and aligned.
  std::span<byte_range const> obstacles{};
  std::size_t prefix_end = 0;  // obstacles below it are in no block's way
  std::size_t max_slots = 1;   // maximum slots of a request
};

/// Plans a step; blocks that outlive the step are below all others. @throws as `make_plan`
[[nodiscard]] step_plan plan_of(learned_step const& step, plan_terms const& terms);

}  // namespace tidemark::detail
