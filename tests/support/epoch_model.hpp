// SPDX-License-Identifier: Apache-2.0
// Random sequences of all operations of epochs, buffers and groups on one thread, compared with a model: each
// buffer has one holder, an epoch by its depth, a group by its number, or none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/epoch.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {

class epoch_model {
 public:
  epoch_model(epoch_resource& memory, recording_resource const& upstream, choices random)
      : memory_{memory}, upstream_{upstream}, random_{std::move(random)} {
    for (std::unique_ptr<buffer_group>& each : owners_)
      each = std::make_unique<buffer_group>(memory_, "buffer_group");
  }
  epoch_model(epoch_model const&) = delete;
  epoch_model& operator=(epoch_model const&) = delete;
  ~epoch_model() {
    while (!epochs_.empty()) end_innermost();
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 400) make();
    else if (what < 550) release();
    else if (what < 650) move();
    else if (what < 750) keep();
    else if (what < 830) open();
    else if (what < 910) end_innermost();
    else if (what < 960) adopt();
    else if (what < 970) close();
    else if (what < 990) remove_dead();
    else memory_.check_invariants();
    check_counts();
  }

  /// Each handle is live exactly if the model says so.
  void check_contents() const {
    for (tracked const& each : buffers_) {
      EXPECT_EQ(each.handle.is_live(), each.holder != gone);
      EXPECT_EQ(each.handle.size(), each.holder != gone ? each.size : 0);
    }
  }

  std::uint64_t reclaimed = 0, promoted = 0, adopted = 0;

 private:
  // Holders: an epoch by its depth, from 1; a buffer group by its number; none; or it is gone.
  static constexpr int untracked = 0, gone = -1, first_owner = -10;
  struct tracked {
    buffer<char> handle;
    std::size_t size;
    int holder;
    bool is_kept;
  };

  [[nodiscard]] int depth() const { return static_cast<int>(epochs_.size()); }

  void make() {
    const std::size_t size = 1 + random_() % (random_() % 50 == 0 ? 5000 : 100);
    log_line("buffers.push_back(buffer<char>{memory, ", size, "});");
    buffers_.push_back({buffer<char>{memory_, size}, size, depth(), false});
    if (depth() > 0) ++allocations_;
    if (buffers_.size() > 400) remove_dead();
  }

  void release() {
    if (buffers_.empty()) return;
    const std::size_t i = random_() % buffers_.size();
    const int holder = buffers_[i].holder;
    log_line("buffers[", i, "].release();");
    EXPECT_EQ(buffers_[i].handle.release(), holder != gone);
    if (holder != gone && holder != untracked) ++deallocations_;
    remove(i);
  }

  void move() {
    if (buffers_.size() < 2) return;
    const std::size_t from = random_() % buffers_.size(), to = random_() % buffers_.size();
    if (random_() % 2 == 0) {
      log_line("std::swap(buffers[", from, "], buffers[", to, "]);");
      std::swap(buffers_[from], buffers_[to]);
    } else if (from != to) {
      if (buffers_[to].holder != gone && buffers_[to].holder != untracked) ++deallocations_;
      log_line("buffers[", to, "] = std::move(buffers[", from, "]);");
      buffers_[to] = std::move(buffers_[from]);
      remove(from);
    }
  }

  void keep() {
    if (buffers_.empty() || epochs_.empty()) return;
    const std::size_t i = random_() % buffers_.size();
    tracked& each = buffers_[i];
    const int of = 1 + static_cast<int>(random_() % epochs_.size());
    epoch& e = *epochs_[static_cast<std::size_t>(of - 1)];
    const std::size_t expected = each.holder == of && !each.is_kept ? 1 : 0;
    const std::uint64_t how = random_() % 3;
    log_line("epochs[", of - 1, "]->keep(buffers[", i, "]",
             how == 1   ? ".view(0, 1)"
             : how == 2 ? ".data()"
                        : "",
             ");");
    // A dead handle's address may be another's by now.
    if (how == 0 || each.holder == gone) {
      EXPECT_EQ(e.keep(each.handle), expected);
    } else if (how == 1) {
      EXPECT_EQ(e.keep(each.handle.view(each.size / 2, 1)), each.handle.storage().record ? expected : 0);
    } else {
      EXPECT_EQ(e.keep(each.handle.data() + random_() % each.size), expected);
    }
    if (expected == 1) each.is_kept = true;
  }

  void open() {
    if (epochs_.size() == 8) return;
    log_line("epochs.push_back(std::make_unique<epoch>(memory));");
    epochs_.push_back(std::make_unique<epoch>(memory_, "model"));
  }

  void end_innermost() {
    if (epochs_.empty()) return;
    epoch_summary expected;
    for (tracked& each : buffers_) {
      if (each.holder != depth()) continue;
      ++(each.is_kept ? expected.promoted : expected.reclaimed);
      (each.is_kept ? expected.promoted_bytes : expected.reclaimed_bytes) += each.size;
      each.holder = each.is_kept ? each.holder - 1 : gone;
      if (each.holder == untracked) ++let_go_;
      each.is_kept = false;
    }
    log_line("epochs.back()->end(); epochs.pop_back();");
    const epoch_summary end = epochs_.back()->end();
    epochs_.pop_back();
    expect_end(end, expected);
    reclaimed += expected.reclaimed;
    promoted += expected.promoted;
  }

  static void expect_end(epoch_summary const& end, epoch_summary const& expected) {
    EXPECT_EQ(end.reclaimed, expected.reclaimed);
    EXPECT_EQ(end.reclaimed_bytes, expected.reclaimed_bytes);
    EXPECT_EQ(end.promoted, expected.promoted);
    EXPECT_EQ(end.promoted_bytes, expected.promoted_bytes);
  }

  void adopt() {
    if (buffers_.empty()) return;
    const std::size_t i = random_() % buffers_.size();
    tracked& each = buffers_[i];
    const int number = static_cast<int>(random_() % owners_.size());
    const bool is_new = each.holder != gone && each.holder != first_owner - number;
    log_line("groups[", number, "]->add(buffers[", i, "]);");
    EXPECT_EQ(owners_[static_cast<std::size_t>(number)]->add(each.handle), is_new ? 1u : 0u);
    if (!is_new) return;
    if (each.holder != untracked) ++let_go_;
    each.holder = first_owner - number;
    each.is_kept = false;
    ++adopted;
  }

  void close() {
    const int number = static_cast<int>(random_() % owners_.size());
    epoch_summary expected;
    for (tracked& each : buffers_) {
      if (each.holder != first_owner - number) continue;
      ++expected.reclaimed;
      expected.reclaimed_bytes += each.size;
      each.holder = gone;
    }
    buffer_group& closed = *owners_[static_cast<std::size_t>(number)];
    log_line("groups[", number, "]->close();");
    EXPECT_EQ(closed.size(), expected.reclaimed);
    expect_end(closed.close(), expected);
    reclaimed += expected.reclaimed;
  }

  void remove_dead() {
    for (std::size_t i = buffers_.size(); i-- > 0;) {
      if (buffers_[i].holder == gone) remove(i);
    }
    if (buffers_.size() > 300) {
      const auto tracked_now = [](tracked const& each) { return each.holder != untracked; };
      deallocations_ += static_cast<std::uint64_t>(std::ranges::count_if(buffers_, tracked_now));
      log_line("buffers.clear();");
      buffers_.clear();
    }
  }

  void remove(std::size_t i) {
    log_line("std::swap(buffers[", i, "], buffers.back()); buffers.pop_back();");
    if (i + 1 != buffers_.size()) buffers_[i] = std::move(buffers_.back());
    buffers_.pop_back();
  }

  void check_counts() const {
    std::size_t used_blocks = 0, used_bytes = 0, all_bytes = 0;
    for (tracked const& each : buffers_) {
      if (each.holder == gone) continue;
      all_bytes += each.size;
      if (each.holder == untracked) continue;
      ++used_blocks;
      used_bytes += each.size;
    }
    const epoch_stats now = memory_.stats();
    EXPECT_EQ(memory_.depth(), epochs_.size());
    EXPECT_EQ(now.used_blocks, used_blocks);
    EXPECT_EQ(now.used_bytes, used_bytes);
    EXPECT_EQ(now.allocations, allocations_);
    EXPECT_EQ(now.adopted, adopted);
    EXPECT_EQ(now.deallocations, deallocations_);
    EXPECT_EQ(now.reclaimed, reclaimed);
    EXPECT_EQ(now.promoted, promoted);
    EXPECT_EQ(now.let_go, let_go_);
    EXPECT_EQ(now.late, 0u);
    EXPECT_EQ(upstream_.outstanding, all_bytes);
  }

  epoch_resource& memory_;
  recording_resource const& upstream_;
  choices random_;
  std::array<std::unique_ptr<buffer_group>, 3> owners_;
  std::vector<std::unique_ptr<epoch>> epochs_;
  std::vector<tracked> buffers_;
  std::uint64_t allocations_ = 0, deallocations_ = 0, let_go_ = 0;
};

}  // namespace tidemark::test
