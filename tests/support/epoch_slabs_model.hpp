// SPDX-License-Identifier: Apache-2.0
// Random raw blocks in nested epochs, kept, deallocated early, late and after they were kept, compared with a
// model of the epoch of each block.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/epoch.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {

class epoch_slabs_model {
 public:
  explicit epoch_slabs_model(choices random) : random_{std::move(random)} {}
  ~epoch_slabs_model() {
    while (!epochs_.empty()) end_epoch();
    while (!held_.empty()) free_one(held_.size() - 1);
    EXPECT_EQ(upstream_.outstanding, 0u) << "slabs without a live block are returned";
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 6 && epochs_.size() < 4) {
      log_line("epochs.push_back(std::make_unique<epoch>(memory));");
      epochs_.push_back(std::make_unique<epoch>(memory_));
    } else if (what < 12 && !epochs_.empty()) {
      end_epoch();
    } else if (what < 160 && !held_.empty()) {
      keep_one(random_() % held_.size());
    } else if (what < 162) {
      memory_.check_invariants();
    } else if (held_.empty() || random_() % 100 < 55) {
      allocate();
    } else {
      free_one(random_() % held_.size());
    }
    check();
  }
  void check_contents() const { blocks_.check_all(); }

  std::size_t reclaimed = 0, promoted = 0, late = 0, freed_when_kept = 0;

 private:
  struct block {
    void* first;
    std::size_t bytes, align, depth;  // 0: of no epoch
    bool is_kept;
  };

  void allocate() {
    const std::size_t bytes = random_() % (random_() % 8 == 0 ? 3000 : 200);
    const std::size_t align = std::size_t{1} << random_() % (random_() % 8 == 0 ? 12 : 5);
    void* const first = log_allocate("memory", memory_, bytes, align);
    blocks_.add(first, bytes, align);
    held_.push_back({first, bytes, align, epochs_.size(), false});
    allocations_ += epochs_.empty() ? 0 : 1;
  }
  void free_one(std::size_t i) {
    const block chosen = remove_at(held_, i);
    blocks_.remove(chosen.first);
    log_deallocate("memory", memory_, chosen.first, chosen.bytes, chosen.align);
    freed_when_kept += chosen.depth == 0 ? 1 : 0;
  }
  void keep_one(std::size_t i) {
    block& chosen = held_[i];
    if (epochs_.empty()) return;
    const std::size_t depth = 1 + random_() % epochs_.size();
    const bool is_its = chosen.depth == depth && !chosen.is_kept;
    log_line("epochs[", depth - 1, "]->keep(", block_at{chosen.first}, ");");
    EXPECT_EQ(epochs_[depth - 1]->keep(chosen.first), is_its ? 1u : 0u);
    chosen.is_kept = chosen.is_kept || is_its;
  }
  void end_epoch() {
    const std::size_t depth = epochs_.size();
    log_line("epochs.back()->end(); epochs.pop_back();");
    const epoch_summary end = epochs_.back()->end();
    epochs_.pop_back();
    std::vector<block> gone;
    std::size_t kept = 0;
    std::erase_if(held_, [&](block& each) {
      if (each.depth != depth) return false;
      if (each.is_kept) {
        ++kept;
        each.is_kept = false;
        --each.depth;
        return false;
      }
      gone.push_back(each);
      return true;
    });
    for (block const& each : gone) blocks_.remove_reclaimed(each.first);
    EXPECT_EQ(end.reclaimed, gone.size());
    EXPECT_EQ(end.promoted, kept);
    reclaimed += gone.size();
    promoted += kept;
    // As containers that outlive their epoch do.
    const violation_recorder recorder;
    for (block const& each : gone) {
      if (random_() % 4 != 0) continue;
      const std::uint64_t before = memory_.stats().late;
      log_line("memory.deallocate(", block_at{each.first}, ", ", each.bytes, ", ", each.align, ");  // late");
      memory_.deallocate(each.first, each.bytes, each.align);
      EXPECT_EQ(memory_.stats().late, before + 1);
      ++late;
    }
  }
  void check() const {
    const epoch_stats now = memory_.stats();
    const auto in_epochs = std::ranges::count_if(held_, [](block const& each) { return each.depth > 0; });
    EXPECT_EQ(now.used_blocks, static_cast<std::size_t>(in_epochs));
    EXPECT_EQ(now.allocations, allocations_);
    EXPECT_EQ(now.reclaimed, reclaimed);
    EXPECT_EQ(now.late, late);
    EXPECT_LE(now.used_bytes, now.peak_bytes);
  }

  recording_resource upstream_;
  epoch_resource memory_{&upstream_};
  choices random_;
  std::vector<std::unique_ptr<epoch>> epochs_;
  std::vector<block> held_;
  shadow blocks_;
  std::uint64_t allocations_ = 0;
};

}  // namespace tidemark::test
