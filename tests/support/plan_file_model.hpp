// SPDX-License-Identifier: Apache-2.0
// Files of valid plans with random changes of a number, a row or a character. A file is rejected with a
// sentence that names it, or its plan serves steps. These steps request the planned blocks or similar blocks,
// and return blocks early, late, and in later steps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test::plan_files {

/// id, lower, upper, size, alignment, offset
using row = std::array<std::uint64_t, 6>;
enum column : std::size_t { id, lower, upper, size, alignment, offset };

class random_choice {
 public:
  explicit random_choice(choices random) : random_{std::move(random)} {}
  std::uint64_t any() { return random_(); }
  /// A number below `bound`; 0 if that is 0.
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound);
  }
  bool one_of(std::size_t n) { return below(n) == 0; }
  template <class Range>
  auto& in(Range& range) {
    return range[below(range.size())];
  }

 private:
  choices random_;
};

inline std::string text_of(std::vector<row> const& rows) {
  std::string text = "id,lower,upper,size,alignment,offset\n";
  for (row const& r : rows) {
    for (std::size_t i = 0; i < r.size(); ++i) text += std::to_string(r[i]) + (i + 1 < r.size() ? ',' : '\n');
  }
  return text;
}

inline std::uint64_t end_of(row const& r) { return r[offset] + std::max<std::uint64_t>(r[size], 1); }

/// Returns a random plan: each block lies at the first aligned place without a conflict with earlier blocks.
/// Some blocks outlive the step, in up to four places. `places_differ` makes some of these places smaller
/// than others, which is invalid.
inline std::vector<row> any_plan(random_choice& choose, bool places_differ) {
  const std::uint64_t requests = 1 + choose.below(10);
  std::vector<row> rows;
  const auto place = [&](row r) {
    r[offset] = 0;
    const auto conflicts = [&](row const& other) {
      return other[lower] < r[upper] && r[lower] < other[upper] && other[offset] < end_of(r) &&
             r[offset] < end_of(other);
    };
    for (auto met = rows.begin(); (met = std::ranges::find_if(rows, conflicts)) != rows.end();)
      r[offset] = detail::align_up(static_cast<std::size_t>(end_of(*met)), r[alignment]);
    rows.push_back(r);
  };
  for (std::uint64_t n = 0; n < requests; ++n) {
    row r{n, n, n + 1 + choose.below(requests - n), choose.one_of(8) ? 0 : choose.below(1500)};
    r[alignment] = std::uint64_t{16} << choose.below(choose.one_of(6) ? 9 : 3);
    std::size_t places = 1;
    if (choose.one_of(3)) r[lower] = 0, r[upper] = requests + 1, places = 1 + choose.below(4);
    for (; places > 0; --places) {
      row one = r;
      if (places_differ && choose.one_of(2)) one[size] = choose.below(r[size]), one[alignment] = 16;
      place(one);
    }
  }
  return rows;
}

/// A number such as breaks rules, or nearly so.
inline std::uint64_t near(std::uint64_t was, std::vector<row>& rows, column at, random_choice& choose) {
  const std::uint64_t power = std::uint64_t{1} << choose.below(choose.one_of(8) ? 64 : 14);
  const std::uint64_t below = choose.one_of(8) ? 0 - power : was - 16 * choose.below(40);
  return std::array<std::uint64_t, 8>{0,       was + 1,
                                      was - 1, choose.one_of(2) ? was * 2 : was / 2,
                                      power,   was + 16 * (1 + choose.below(40)),
                                      below,   choose.in(rows)[at]}[choose.below(8)];
}

inline void tamper(std::vector<row>& rows, random_choice& choose) {
  const std::size_t i = choose.below(rows.size());
  const auto at = rows.begin() + static_cast<std::ptrdiff_t>(i);
  const auto some_column = static_cast<column>(choose.below(6));
  std::uint64_t top = 0;
  for (row const& r : rows) top = std::max(top, end_of(r));
  switch (choose.below(10)) {
    case 0:
    case 1: {  // a further place of the request
      row further = rows[i];
      further[offset] = detail::align_up(static_cast<std::size_t>(top), choose.one_of(4) ? 256 : 4096);
      rows.insert(at + static_cast<std::ptrdiff_t>(choose.below(2)), further);
      break;
    }
    case 2:
      rows.insert(at, rows[i]);
      break;
    case 3:
      if (rows.size() > 1) rows.erase(at);
      break;
    case 4:
      std::swap(rows[i], choose.in(rows));
      break;
    case 5:
      std::swap(rows[i][some_column], choose.in(rows)[some_column]);
      break;
    default:
      rows[i][some_column] = near(rows[i][some_column], rows, some_column, choose);
  }
}

inline void tamper(std::string& text, random_choice& choose) {
  const std::string letters = "0123456789,\n -x";
  const std::size_t at = choose.below(text.size());
  text.replace(at, choose.below(2), choose.below(3), choose.in(letters));
}

/// Counts over all sequences, because an untested outcome shows nothing.
struct sums {
  std::uint64_t rejected = 0, used = 0, planned = 0, several_places = 0, live_through_steps = 0;
};

class plan_file_model {
 public:
  using arena_type = basic_planned_arena<upstream_memory>;

  plan_file_model(choices random, sums& seen) : choose_{std::move(random)}, sums_{seen} {
    std::filesystem::create_directories(folder_);
  }
  plan_file_model(plan_file_model const&) = delete;
  plan_file_model& operator=(plan_file_model const&) = delete;
  ~plan_file_model() {
    end_arena();
    std::filesystem::remove_all(folder_);
  }

  void step() {
    if (!arena_) return try_file();
    const bool is_full = live_.size() > 40;
    if (!step_ && !is_full && !choose_.one_of(4)) {
      log_line("step.emplace(*arena);");
      step_.emplace(*arena_);
      next_ = 0;
    } else if (step_ && next_ < plan_.requests && !is_full && choose_.below(5) < 3) {
      allocate();
    } else if (!live_.empty() && !choose_.one_of(4)) {
      free_one();
    } else if (next_ >= plan_.requests || choose_.one_of(20)) {
      end_step();
    }
  }
  void check_contents() const { blocks_.check_all(); }

 private:
  struct held_block {
    void* first;
    std::size_t bytes, align;
    std::uint64_t step, due_step, due;  // it is due before that request of that step
  };

  static std::size_t end_of(step_plan const& plan) {
    std::size_t end = 0;
    for (planned_block const& block : plan.blocks)
      end = std::max(end, *block.life.offset + std::max<std::size_t>(block.life.size, 1));
    return end;
  }

  void try_file() {
    std::vector<row> rows = any_plan(choose_, choose_.one_of(4));
    for (std::size_t n = choose_.below(3); n > 0; --n) tamper(rows, choose_);
    std::string text = text_of(rows);
    if (choose_.one_of(12)) tamper(text, choose_);
    std::filesystem::remove(path_);  // some file systems wait for the disk when a file is overwritten
    std::ofstream{path_, std::ios::binary} << text;
    log_line("load_step_plan of:\n", text);
    try {
      plan_ = load_step_plan(path_);
      // A plan that only a program can express: memory that ends with the last block.
      if (choose_.one_of(3)) plan_.height = end_of(plan_);
      plan_.lower_bound = 0;
      planned_arena_options options;
      options.reserve = 1;
      options.fallback = &supply_;
      arena_.emplace(options, &memory_);
      arena_->use(plan_);
      ++sums_.used;
    } catch (std::runtime_error const& error) {
      EXPECT_TRUE(std::string{error.what()}.starts_with(path_ + ":")) << error.what();
      ++sums_.rejected;
    } catch (std::invalid_argument const&) {  // less aligned than to 16, or cut off at the top
      arena_.reset();
      ++sums_.rejected;
    }
    steps_ = 0;
  }

  void allocate() {
    // A request that fits into one of the request's places; all of them must hold it.
    std::vector<planned_block> places;
    std::ranges::copy_if(plan_.blocks, std::back_inserter(places),
                         [&](planned_block const& block) { return block.request == next_; });
    lifetime const& life = choose_.in(places).life;
    const std::size_t most = std::min<std::size_t>(life.size, 64 * KiB);
    std::size_t bytes = most;
    if (choose_.one_of(8)) bytes = choose_.below(most);
    if (choose_.one_of(8)) bytes = detail::align_up(most, std::min<std::size_t>(plan_.alignment, 4 * KiB));
    std::size_t align = std::min<std::size_t>(life.alignment, 64 * KiB);
    if (choose_.one_of(8)) align = std::size_t{1} << choose_.below(13);
    const std::uint64_t before = arena_->stats().planned_allocations;
    void* const first = log_allocate("(*arena)", *arena_, bytes, align);
    blocks_.add(first, bytes, align);
    if (plan_.outlives(places.front()))
      live_.push_back(
          {first, bytes, align, steps_, steps_ + 1 + choose_.below(2), choose_.below(plan_.requests)});
    else live_.push_back({first, bytes, align, steps_, steps_, life.upper});
    if (arena_->stats().planned_allocations == before) return void(++next_);
    ++sums_.planned;
    if (places.size() > 1) ++sums_.several_places;
    next_ += choose_.one_of(30) ? 2 : 1;
  }

  // Mostly one that is due.
  void free_one() {
    std::size_t i = choose_.below(live_.size());
    if (!choose_.one_of(6)) {
      const auto due = [&](held_block const& held) {
        return std::pair{held.due_step, held.due} <= std::pair{steps_, next_};
      };
      const auto found = std::ranges::find_if(live_, due);
      if (found == live_.end()) return;
      i = static_cast<std::size_t>(found - live_.begin());
    }
    const held_block gone = live_[i];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    if (gone.step != steps_) ++sums_.live_through_steps;
    blocks_.remove(gone.first);
    log_deallocate("(*arena)", *arena_, gone.first, gone.bytes, gone.align);
  }

  void end_step() {
    log_line("step.reset();");
    step_.reset();
    next_ = 0;
    arena_->check_invariants();
    EXPECT_TRUE(violation_recorder::reports().empty());
    if (++steps_ == 5) end_arena();
  }

  void end_arena() {
    step_.reset();
    for (held_block const& held : live_) {
      blocks_.remove(held.first);
      arena_->deallocate(held.first, held.bytes, held.align);
    }
    live_.clear();
    arena_.reset();
  }

  random_choice choose_;
  sums& sums_;
  std::filesystem::path folder_ = std::filesystem::path{testing::TempDir()} / "plan_file_model";
  std::string path_ = (folder_ / "step.csv").string();
  violation_recorder violations_;
  recording_resource supply_;
  limit_resource memory_{&supply_, 16 * MiB};  // a file may claim more than all memory
  step_plan plan_;
  std::optional<arena_type> arena_;
  std::optional<arena_type::step> step_;
  std::uint64_t next_ = 0, steps_ = 0;
  std::vector<held_block> live_;
  shadow blocks_;
};

}  // namespace tidemark::test::plan_files
