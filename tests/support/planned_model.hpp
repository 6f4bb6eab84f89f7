// SPDX-License-Identifier: Apache-2.0
// Random programs of steps on planned arenas. A program has a few patterns of requests that begin alike, and
// follows, bends and breaks them: sizes, order, requests left out, added or missing at the end; blocks that
// die early, late, in another order, steps later or never; steps that alternate, and requests between them.
// The memory may be scarce, and the fallback may fail. The counts equal those of the model, which learns from
// the fallback who served a request.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test::planned_programs {

/// A request of a pattern, and the death of its block: before request `end` of its step, or of the step
/// `steps_later` steps later.
struct request {
  std::size_t bytes = 0, align = 1, end = 0, steps_later = 0;
};
using pattern = std::vector<request>;

inline constexpr std::size_t at_the_end = 1'000'000;     // of the step, when all its requests were made
inline constexpr std::size_t between_steps = 2'000'000;  // after that
inline constexpr std::size_t never = 1'000'000;          // this many steps later

/// The deviations of a step from its pattern.
enum class deviation { none, smaller, larger, swapped, left_out, added, late, early, kept, cut_short, empty };
inline constexpr std::size_t deviations = 11;

inline request any_request(choices& random, std::size_t n) {
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  request made;
  made.bytes = below(20) == 0 ? 0 : below(12) == 0 ? below(5000) : below(600);
  made.align = std::size_t{1} << (below(40) == 0 ? below(13) : below(6));
  const std::size_t how = below(100);
  if (how < 55) made.end = n + 1 + below(4);
  else if (how < 80) made.end = n + 1 + below(30);
  else if (how < 88) made.end = at_the_end;
  else if (how < 91) made.end = between_steps;
  else made = {.bytes = made.bytes, .align = made.align, .end = below(20), .steps_later = 1 + below(50) / 40};
  if (below(300) == 0) made.steps_later = never;
  return made;
}

inline pattern any_pattern(choices& random, std::size_t requests) {
  pattern made;
  for (std::size_t n = 0; n < requests; ++n) made.push_back(any_request(random, n));
  return made;
}

inline void deviate(pattern& step, deviation how, choices& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (below(8) != 0) continue;
    request& one = step[i];
    const auto at = step.begin() + static_cast<std::ptrdiff_t>(i);
    if (how == deviation::none) return;
    if (how == deviation::smaller) one.bytes = below(one.bytes + 1);
    else if (how == deviation::larger) one.bytes += 1 + below(800);
    else if (how == deviation::swapped && i + 1 < step.size()) std::swap(one, step[i + 1]);
    else if (how == deviation::left_out) step.erase(at);
    else if (how == deviation::added) step.insert(at, any_request(random, i));
    else if (how == deviation::late) one.end = below(4) == 0 ? between_steps : one.end + 1 + below(12);
    else if (how == deviation::early) one.end = i + 1, one.steps_later = 0;
    else if (how == deviation::kept) one.steps_later += 1 + below(3);
    else if (how == deviation::cut_short) step.resize(i);
    else if (how == deviation::empty) step.clear();
  }
}

/// The heap, which now and then has nothing. Counts.
class moody_resource final : public detail::distinct_resource {
 public:
  explicit moody_resource(choices& random) : random_{random} {}
  std::size_t one_of = 0;  ///< requests that fail; 0: none
  std::uint64_t served = 0, refused = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (one_of != 0 && random_() % one_of == 0) {
      ++refused;
      throw std::bad_alloc{};
    }
    void* const block = exact_.allocate(bytes, align);
    ++served;
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    exact_.deallocate(block, bytes, align);
  }

  choices& random_;
  recording_resource exact_;
};

/// Coverage of all programs.
struct reached {
  planned_arena_stats of_arenas = {};
  std::uint64_t operations = 0, kind_changes = 0, added_slots = 0, blocks_through_steps = 0;
  std::uint64_t trimmed = 0, used_plans = 0, refused = 0, unlaid = 0, wrong_frees = 0;
};

/// In place of a supply: the arena's memory is its fallback's, which fails now and then.
struct fallback_supply {
  static constexpr std::uint64_t never = supply::never;
  std::uint64_t calls = 0, fail_from = never, fail_count = 0;
};

/// Runs programs, one after another, each on its own arena. @tparam Supply as in the conformance suite, or
/// `fallback_supply`
template <class Arena, class Supply>
class planned_model {
 public:
  /// The fallback also serves plans, so its requests do not show which blocks were planned.
  static constexpr bool is_borrowed = std::same_as<Supply, fallback_supply>;

  planned_model(choices random, bool is_scarce, reached& sums)
      : random_{std::move(random)}, is_scarce_{is_scarce}, sums_{sums} {
    begin_program();
  }
  planned_model(planned_model const&) = delete;
  planned_model& operator=(planned_model const&) = delete;
  ~planned_model() { end_program(); }

  /// One operation of the program.
  void step() {
    ++sums_.operations;
    if (++operations_ % 2000 == 0) {
      end_program();
      begin_program();
    }
    supply_may_change();
    if (below(is_scarce_ ? 100 : 200) == 0) trim();
    if (!step_.has_value()) operate_between_steps();
    else if (!free_due()) operate_in_step();
    check_counts();
  }

  void check_contents() {
    blocks_.check_all();
    arena_->check_invariants();
    EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  }

 private:
  struct held {
    void* block;
    std::size_t bytes, align;
    std::uint64_t due_step;
    std::size_t due_at;
    bool planned;
  };

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  void begin_program() {
    planned_arena_options options;
    constexpr std::array<std::size_t, 4> alignments{16, 64, 256, 4096};
    options.alignment = alignments[below(4)];
    options.max_misses = std::size_t{1} << below(7);
    options.max_kinds = 1 + below(5);
    options.max_slots = 1 + below(4);
    options.reserve = below(2) == 0 ? 1 : 64 * KiB;
    options.fallback = &fallback_;
    fallback_.one_of = is_scarce_ && below(2) == 0 ? 20 + below(200) : 0;
    fails_ = is_scarce_ && below(2) == 0;
    log_line("arena.emplace(planned_arena_options{.alignment = ", options.alignment,
             ", .max_misses = ", options.max_misses, ", .max_kinds = ", options.max_kinds,
             ", .max_slots = ", options.max_slots, ", .reserve = ", options.reserve, "});");
    arena_.emplace(options, make_memory(supply_));
    // The patterns begin alike, so that a step shows late which one it follows. They then differ much, or not
    // at all if one is the end of another.
    const std::size_t requests = 1 + below(below(4) == 0 ? 70 : 25), alike = below(requests + 1);
    patterns_[0] = any_pattern(random_, requests);
    for (std::size_t i = 1; i < patterns_.size(); ++i) {
      patterns_[i] = any_pattern(random_, 1 + below(40));
      if (patterns_[i].size() > alike) std::copy_n(patterns_[0].begin(), alike, patterns_[i].begin());
      if (below(3) == 0)
        patterns_[i] = {patterns_[0].begin(), patterns_[0].begin() + 1 + std::ptrdiff_t(below(requests))};
    }
    program_ = below(5);
    names_kinds_ = below(2) == 0;
    deviates_one_of_ = std::size_t{1} << (1 + below(5));
    step_number_ = 0;
    counts_ = {};
  }

  void end_program() {
    step_.reset();
    fallback_.one_of = 0;
    supply_.fail_from = supply::never;
    while (!live_.empty()) free_one(live_.size() - 1);
    const planned_arena_stats stats = arena_->stats();
    EXPECT_EQ(stats.used_blocks, 0u);
    if (below(2) == 0) saved_ = arena_->plans();
    arena_.reset();
    sums_.of_arenas += stats;
  }

  static virtual_memory make_memory(recording_os& os) { return virtual_memory{{}, os}; }
  static upstream_memory make_memory(recording_resource& upstream) { return upstream_memory{&upstream}; }
  upstream_memory make_memory(fallback_supply&) { return upstream_memory{&fallback_}; }

  void supply_may_change() {
    if (!fails_ || below(100) != 0) return;
    supply_.fail_from = supply_.calls + below(3);
    supply_.fail_count = below(4) == 0 ? supply::never : 1 + below(3);
    if (below(3) == 0) supply_.fail_from = supply::never;
  }

  // ---- steps ----

  void operate_between_steps() {
    const std::size_t what = below(100);
    if (what < 15) allocate(any_request(random_, 0));
    else if (what < 25 && !live_.empty()) free_one(below(live_.size()));
    else if (what < 27) use_saved();
    else if (what < 29) saved_ = arena_->plans();
    else if (!free_due()) open_step();
  }

  void open_step() {
    for (held const& one : live_) sums_.blocks_through_steps += one.planned ? 1 : 0;
    if (below(400) == 0) patterns_[below(patterns_.size())] = any_pattern(random_, 1 + below(40));
    // One pattern; two in turn; any; or none.
    std::size_t which = 0;
    if (program_ == 1) which = step_number_ % 2;
    if (program_ == 2 || program_ == 4) which = below(patterns_.size());
    todo_ = program_ == 3 ? any_pattern(random_, 1 + below(30)) : patterns_[which];
    if (below(deviates_one_of_) == 0) deviate(todo_, static_cast<deviation>(below(deviations)), random_);
    shuffles_ = below(8) == 0;
    next_ = 0;
    fallback_in_step_ = fallback_.served + fallback_.refused;
    has_planned_ = false;
    const std::size_t kind = names_kinds_ ? which : 0;
    log_line("step.emplace(*arena, ", kind, ");");
    step_.emplace(*arena_, kind);
    sums_.kind_changes += kind != last_kind_ ? 1 : 0;
    last_kind_ = kind;
  }

  void operate_in_step() {
    if (next_ == todo_.size() || below(3000) == 0) return close_step();
    allocate(todo_[next_]);
    ++next_;
  }

  void close_step() {
    log_line("step.reset();");
    step_.reset();
    ++counts_.steps;
    const bool asked = next_ != 0, used_fallback = fallback_.served + fallback_.refused != fallback_in_step_;
    if constexpr (is_borrowed) {
      counts_.planned_steps = arena_->stats().planned_steps;
      counts_.partly_planned_steps = arena_->stats().partly_planned_steps;
    } else if (asked && !used_fallback) {
      ++counts_.planned_steps;
    } else if (has_planned_) {
      ++counts_.partly_planned_steps;
    }
    ++step_number_;
    if (below(16) == 0) check_plans();
    while (live_.size() > 120) free_one(below(live_.size()));
  }

  void check_plans() {
    for (step_plan const& plan : arena_->plans()) {
      plan.require_valid();
      std::size_t of_request = 0;
      for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
        of_request = i > 0 && plan.blocks[i].request == plan.blocks[i - 1].request ? of_request + 1 : 1;
        EXPECT_LE(of_request, arena_->options().max_slots);
        sums_.added_slots += of_request > 1 ? 1 : 0;
      }
    }
  }

  void use_saved() {
    if (saved_.empty()) return;
    step_plan const& plan = saved_[below(saved_.size())];
    // A plan of a program that may have more slots than this one.
    std::vector<std::size_t> slots(plan.requests);
    for (planned_block const& block : plan.blocks) {
      if (++slots[block.request] > arena_->options().max_slots) return;
    }
    log_line("arena->use(a plan that it made before);");
    arena_->use(plan);
    ++sums_.used_plans;
  }

  void trim() {
    const planned_arena_stats before = arena_->stats();
    log_line("arena->trim();");
    const std::size_t bytes = arena_->trim();
    EXPECT_EQ(arena_->stats().committed_bytes, before.committed_bytes - bytes);
    if (before.used_blocks == 0 && !step_.has_value() && !fails_)
      EXPECT_EQ(arena_->stats().committed_bytes, 0u);
    sums_.trimmed += bytes > 0 ? 1 : 0;
  }

  // ---- blocks ----

  void allocate(request const& what) {
    const std::uint64_t served_before = fallback_.served;
    const std::uint64_t planned_before = arena_->stats().planned_allocations;
    log_line("void* ", new_block{}, " = arena->allocate(", what.bytes, ", ", what.align, ");");
    void* block = nullptr;
    try {
      block = arena_->allocate(what.bytes, what.align);
      name_block(block);
    } catch (std::bad_alloc const&) {
      ++sums_.refused;
      if (!is_borrowed) EXPECT_EQ(fallback_.served, served_before);
      return;
    }
    const bool planned = is_borrowed ? arena_->stats().planned_allocations != planned_before
                                     : fallback_.served == served_before;
    if (planned) EXPECT_TRUE(step_.has_value());
    has_planned_ = has_planned_ || planned;
    ++(planned             ? counts_.planned_allocations
       : step_.has_value() ? counts_.fallback_allocations
                           : counts_.outside_allocations);
    blocks_.add(block, what.bytes, what.align);
    live_.push_back({.block = block,
                     .bytes = what.bytes,
                     .align = what.align,
                     .due_step = step_number_ + what.steps_later,
                     .due_at = step_.has_value() ? what.end : below(40),
                     .planned = planned});
  }

  // The block that is due: the one whose time came first, or any if this step shuffles.
  bool free_due() {
    const std::size_t at = !step_.has_value() ? between_steps : next_ == todo_.size() ? at_the_end : next_;
    const std::uint64_t now = step_.has_value() || step_number_ == 0 ? step_number_ : step_number_ - 1;
    std::size_t chosen = live_.size();
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (std::pair{live_[i].due_step, live_[i].due_at} > std::pair{now, at}) continue;
      if (chosen == live_.size() || (shuffles_ ? below(2) == 0 : earlier(live_[i], live_[chosen])))
        chosen = i;
    }
    if (chosen == live_.size()) return false;
    free_one(chosen);
    return true;
  }
  static bool earlier(held const& a, held const& b) {
    return std::pair{a.due_step, a.due_at} < std::pair{b.due_step, b.due_at};
  }

  void free_one(std::size_t i) {
    const held gone = live_[i];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));  // in order, as programs are
    if (check_level >= 2 && gone.planned && below(200) == 0) free_wrongly(gone);
    blocks_.remove(gone.block);
    log_deallocate("(*arena)", *arena_, gone.block, gone.bytes, gone.align);
  }

  // As another size, and from inside: both are reported, and change nothing.
  void free_wrongly(held const& one) {
    arena_->deallocate(one.block, one.bytes + 1, one.align);
    arena_->deallocate(static_cast<std::byte*>(one.block) + 8, one.bytes, one.align);
    EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
    violation_recorder::reports().clear();
    ++sums_.wrong_frees;
  }

  void check_counts() {
    const planned_arena_stats stats = arena_->stats();
    const auto planned_live = static_cast<std::size_t>(std::ranges::count_if(live_, &held::planned));
    EXPECT_EQ(stats.steps, counts_.steps);
    EXPECT_EQ(stats.planned_steps, counts_.planned_steps);
    EXPECT_EQ(stats.partly_planned_steps, counts_.partly_planned_steps);
    EXPECT_EQ(stats.steps, stats.planned_steps + stats.partly_planned_steps + stats.unplanned_steps);
    EXPECT_EQ(stats.planned_allocations, counts_.planned_allocations);
    EXPECT_EQ(stats.fallback_allocations, counts_.fallback_allocations);
    EXPECT_EQ(stats.outside_allocations, counts_.outside_allocations);
    EXPECT_EQ(stats.allocations,
              counts_.planned_allocations + counts_.fallback_allocations + counts_.outside_allocations);
    EXPECT_EQ(stats.used_blocks, planned_live);
    EXPECT_LE(stats.misses, stats.fallback_allocations);
    EXPECT_LE(stats.lower_bound_bytes, stats.height_bytes);
    EXPECT_LE(stats.committed_bytes, stats.reserved_bytes);
    EXPECT_LE(stats.plans, arena_->options().max_kinds);
    if (stats.plans > 0 && stats.committed_bytes < stats.height_bytes) ++sums_.unlaid;
  }

  choices random_;
  bool is_scarce_;
  reached& sums_;
  Supply supply_;
  moody_resource fallback_{random_};
  std::optional<Arena> arena_;
  std::optional<typename Arena::step> step_;
  std::vector<step_plan> saved_;
  violation_recorder violations_;

  std::array<pattern, 3> patterns_;
  std::size_t program_ = 0, deviates_one_of_ = 1;
  bool fails_ = false;
  pattern todo_;
  std::size_t next_ = 0;
  bool shuffles_ = false;
  std::uint64_t step_number_ = 0, operations_ = 0, fallback_in_step_ = 0;
  bool names_kinds_ = false, has_planned_ = false;
  std::size_t last_kind_ = 0;

  std::vector<held> live_;
  shadow blocks_;
  planned_arena_stats counts_;  // of the model
};

}  // namespace tidemark::test::planned_programs
