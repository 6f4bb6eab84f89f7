// SPDX-License-Identifier: Apache-2.0
// The records of a planned arena: `step_recorder`, the requests of one step; `learned_step`, the learned
// requests of a kind of step, and `plan_of`, their plan; `kinds_of_steps`, the kinds with their plans;
// `foreign_blocks`, the live blocks that are not in the current plan. Own their records, but no memory of
// blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/plan/replay/detail/plan_replayer.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::detail {

/// Index of a request that is in no plan.
inline constexpr std::size_t no_request = (std::numeric_limits<std::size_t>::max)();

/// A request of a step, with the allocation and deallocation of its block in requests.
struct recorded_request {
  std::uint64_t born = 0;
  std::uint64_t died = 0;  // 0: the block is live
  std::size_t bytes = 0, align = 1;
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
[[nodiscard]] learned_step learn(step_recorder& recorder, learned_step const& before = {});
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

/// Debt of a kind of step for each new plan, and the debt at which the kind rests.
inline constexpr std::size_t debt_of_plan = 8, max_debt = 4 * debt_of_plan;

/// A kind of step.
struct kind_of_step {
  std::uint64_t kind = 0;
  learned_step learned{};
  std::unique_ptr<plan_replayer> plan{};  // plan of `learned`; null: not yet planned
  std::size_t misses = 0;       // misses since `learned` was a new sequence, minus the steps without a miss
  std::size_t more_due = 0;     // next steps in which an extra request makes a new plan
  std::size_t loose_steps = 0;  // consecutive steps that used far less than the plan
  std::size_t early_steps = 0;  // consecutive steps in which an outliving block died early
  std::size_t plans_made = 0;   // plans made for this kind
  std::size_t debt = 0;         // `debt_of_plan` for each new plan, minus the fully planned steps
  std::size_t rest_steps = 0;   // next steps that are not recorded
  bool has_rested = false;      // true if the kind has rested since its last plan
  bool was_matched = false;     // true if a step has followed the plan and needed most of it
  bool excludes_outliving = false;  // true if blocks that are live at the end of their step are never planned
};

/// Kinds of steps in the order of last use. Thread-safety: one thread at a time.
///
/// Slots with bytes of their own are below all others, in a prefix that all plans share. A block that
/// outlives a step of one kind is therefore in the way of no other kind. The n-th slot of a size and
/// alignment has the same place in each plan. Without a prefix these slots have no bytes, and their blocks
/// are elsewhere.
///
/// Invariants: `size <= max_kinds`; each plan has the requests of `learned`.
class kinds_of_steps {
 public:
  kinds_of_steps(std::size_t max_kinds, bool has_prefix) noexcept
      : max_kinds_{max_kinds}, has_prefix_{has_prefix} {}

  /// Returns a kind and makes it the most recently used; null if the kind is unknown.
  [[nodiscard]] kind_of_step* find(std::uint64_t kind) noexcept;
  /// Adds a kind. If the list is full, the new kind replaces the least recently used kind and inherits twice
  /// its debt. @pre The kind is unknown. @throws std::bad_alloc with nothing changed
  [[nodiscard]] kind_of_step& add(std::uint64_t kind);
  [[nodiscard]] std::list<kind_of_step> const& all() const noexcept { return kinds_; }

  /// Lays out the prefix and all plans above it. @pre No slot of a plan is live.
  void lay_out() noexcept;
  /// Returns the bytes of the prefix.
  [[nodiscard]] std::size_t prefix_end() const noexcept { return prefix_end_; }

 private:
  std::size_t max_kinds_;
  bool has_prefix_;
  std::size_t prefix_end_ = 0;
  std::list<kind_of_step> kinds_;  // most recently used first
};

/// A block in a slot of another plan, or of an earlier step of the same plan. It keeps the state of the slot
/// until the block dies.
using foreign_block = plan_replayer::place;

/// Disjoint foreign blocks by address. A dead block keeps its entry until the next `detach_live`.
class foreign_blocks {
 public:
  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  /// Returns the blocks by address, dead blocks included.
  [[nodiscard]] std::vector<foreign_block> const& all() const noexcept { return blocks_; }

  /// Detaches live blocks from a plan: all blocks, or only those whose slots the next step may need. @throws
  /// std::bad_alloc with nothing changed.
  void detach_live(plan_replayer& plan, bool outliving_too);
  /// Finds the blocks that are in the way of the current plan. Slots with bytes of their own do not count,
  /// because each allocation compares them.
  void find_blocking(plan_replayer const& plan) noexcept;
  /// Returns the number of live blocks in the way of the current plan.
  [[nodiscard]] std::size_t in_way() const noexcept { return in_way_; }

  /// Returns the live block that begins at an address; null if there is no such block.
  [[nodiscard]] foreign_block* find(std::uintptr_t address) noexcept;
  /// @pre `found` is a result of `find`.
  void remove(foreign_block& found) noexcept {
    found.died = found.born;
    in_way_ -= is_in_way(found) ? 1 : 0;
    --live_;
  }
  /// Returns true if a live block has a byte in [begin, begin + bytes).
  [[nodiscard]] bool overlap(std::uintptr_t begin, std::size_t bytes) const noexcept;

 private:
  // Returns true if a slot without bytes of its own may share a byte with the block.
  [[nodiscard]] bool is_in_way(foreign_block const& block) const noexcept {
    return block.address + block.max_bytes > way_begin_;
  }

  std::vector<foreign_block> blocks_;  // by address
  std::uintptr_t way_begin_ = 0;       // start of the slots without bytes of their own
  std::size_t live_ = 0, in_way_ = 0;
};

}  // namespace tidemark::detail
