// SPDX-License-Identifier: Apache-2.0
// Random sequences on a switch, compared with a model. The model knows the owner of each block, and thus the
// moment at which the upstream sees it again. Captures begin and end, arenas are installed, cleared and
// destroyed late, blocks cross the borders of captures, graphs keep blocks. No byte that a graph knows may
// change its owner while the graph lives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "recording_supply.hpp"
#include "shadow.hpp"

namespace tidemark::test {

/// The memory below a switch. A device refuses to free memory while its stream captures.
class captured_device final : public detail::distinct_resource {
 public:
  bool captures = false;
  recording_resource memory;
  std::size_t returned = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return memory.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    EXPECT_FALSE(captures) << "a block goes back in a capture";
    memory.deallocate(block, bytes, align);
    ++returned;
  }
};

class switch_model {
 public:
  explicit switch_model(choices random) : random_{std::move(random)} {}
  switch_model(switch_model const&) = delete;
  switch_model& operator=(switch_model const&) = delete;
  ~switch_model() {
    if (frozen_) end_capture();
    if (installed_ != nullptr) clear();
    while (!graphs_.empty()) end_graph(graphs_.begin());
    while (!live_.empty()) deallocate(live_.begin());
    check();
    EXPECT_EQ(device_.memory.outstanding, 0u);
  }

  std::size_t captures = 0, baked = 0, deferred = 0, late = 0, orphans = 0, empty_captures = 0,
              in_capture = 0, in_two = 0;

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 450) allocate();
    else if (what < 850) {
      if (!live_.empty()) deallocate(any());
    } else if (what < 890) {
      if (installed_ == nullptr) install();
      else if (random_() % 4 == 0) clear();
    } else if (what < 930) {
      if (!frozen_) begin_capture();
    } else if (what < 960) {
      if (frozen_) end_capture();
    } else if (what < 980) {
      if (graphs_.size() > 3 || (!graphs_.empty() && random_() % 4 == 0)) end_graph(graphs_.begin());
    } else if (what < 985) {
      end_arena_early();
    }
    check();
  }

  void check_contents() const {
    contents_.check_all();
    switch_.check_invariants();
  }

 private:
  struct graph;
  struct arena_of_graph {
    std::unique_ptr<graph_arena> arena;
    std::vector<void*> handed_out;  // in use or not: its addresses are in the graph
  };
  using arenas = std::list<arena_of_graph>;
  struct block {
    std::size_t bytes, align;
    graph_arena* arena;     // null: of the upstream
    std::uint64_t capture;  // that has baked it; 0: none
  };
  using blocks = std::map<void*, block>;
  struct graph {
    std::uint64_t capture;
    std::optional<baked_blocks> held;  // none while it is captured
    arenas memory;
    std::vector<void*> deallocated;  // baked, and not in use
  };
  using graphs = std::list<graph>;

  blocks::iterator any() {
    auto found = live_.begin();
    std::advance(found, random_() % std::min<std::size_t>(live_.size(), 30));
    return found;
  }

  void allocate() {
    if (live_.size() > 200) return;
    const std::size_t bytes = random_() % 700;
    const std::size_t align = std::size_t{1} << random_() % 9;
    log_line("void* ", new_block{}, " = memory.allocate(", bytes, ", ", align, ");");
    void* first = nullptr;
    try {
      first = switch_.allocate(bytes, align);
      name_block(first);
    } catch (out_of_memory const&) {
      ASSERT_TRUE(frozen_ && installed_ != nullptr) << "only an arena runs out here";
      ++refused_;
      clear();  // and the capture goes on without
      return;
    }
    ++allocations_;
    contents_.add(first, bytes, align);
    block made{bytes, align, nullptr, 0};
    if (frozen_ && installed_ != nullptr) {
      EXPECT_TRUE(installed_->owns(first));
      made.arena = installed_;
      installed_at()->handed_out.push_back(first);
    } else {
      EXPECT_TRUE(device_.memory.holds(first));
      if (frozen_) {
        made.capture = capture_;
        ++baked;
      }
    }
    live_.emplace(first, made);
    used_bytes_ += bytes;
  }

  void deallocate(blocks::iterator chosen) {
    const auto [first, of] = *chosen;
    live_.erase(chosen);
    used_bytes_ -= of.bytes;
    ++deallocations_;
    const std::size_t returned = device_.returned;
    const std::size_t in_use = of.arena != nullptr ? of.arena->stats().used_blocks : 0;
    // Blocks that go to the upstream may be reused by others from then on.
    const bool is_returned_at_once = of.arena == nullptr && of.capture == 0 && !frozen_;
    if (is_returned_at_once) contents_.remove(first);
    log_deallocate("memory", switch_, first, of.bytes, of.align);
    if (of.arena != nullptr) {
      EXPECT_EQ(of.arena->stats().used_blocks, in_use - 1);
      late += !frozen_ || of.arena != installed_ ? 1 : 0;
    } else if (of.capture != 0) {
      graph_of(of.capture).deallocated.push_back(first);
      if (frozen_ && of.capture != capture_) {
        graphs_.back().deallocated.push_back(first);
        ++in_two;
      }
    } else if (frozen_) {
      graphs_.back().deallocated.push_back(first);
      ++deferred;
    }
    EXPECT_EQ(device_.returned, returned + (is_returned_at_once ? 1 : 0));
    if (of.arena == nullptr && !is_returned_at_once)
      EXPECT_TRUE(device_.memory.holds(first)) << "the block is deferred";
  }

  void install() {
    arena_of_graph made{std::make_unique<graph_arena>(16 * KiB, &arena_memory_), {}};
    installed_ = made.arena.get();
    waiting_.push_back(std::move(made));
    log_line("memory.install_arena(*new graph_arena{16 * KiB, &arena_memory});");
    switch_.install_arena(*installed_);
    EXPECT_THROW(switch_.install_arena(*installed_), std::logic_error);
  }
  void clear() {
    log_line("memory.clear_arena();");
    EXPECT_EQ(switch_.clear_arena(), installed_);
    EXPECT_EQ(switch_.clear_arena(), nullptr);
    installed_ = nullptr;
  }

  void begin_capture() {
    graphs_.push_back({.capture = ++capture_, .held = {}, .memory = {}, .deallocated = {}});
    allocations_at_begin_ = allocations_;
    log_line("memory.freeze();");
    switch_.freeze();
    frozen_ = device_.captures = true;
    EXPECT_THROW(switch_.freeze(), std::logic_error);
    ++captures;
  }
  void end_capture() {
    // Often as `capture` does, and sometimes with the arena left installed.
    if (installed_ != nullptr && random_() % 4 != 0) clear();
    const std::size_t returned = device_.returned;
    for (void* const first : deferred_) contents_.remove(first);
    device_.captures = frozen_ = false;
    graph& made = graphs_.back();
    log_line("graphs[", made.capture, "] = memory.unfreeze();");
    made.held = switch_.unfreeze();
    EXPECT_EQ(device_.returned, returned + deferred_.size()) << "each that waited, once";
    for (void* const first : deferred_) EXPECT_FALSE(device_.memory.holds(first));
    deferred_.clear();
    // It owns every arena that is no longer installed.
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const auto current = one++;
      if (current->arena.get() != installed_) made.memory.splice(made.memory.end(), waiting_, current);
    }
    empty_captures += allocations_ == allocations_at_begin_ ? 1 : 0;
  }

  void end_graph(graphs::iterator ended) {
    if (!ended->held) return;  // it is captured still
    std::size_t baked_now = ended->deallocated.size();
    for (auto& [first, of] : live_) {
      if (of.capture != ended->capture) continue;
      of.capture = 0;  // from now on a block like any other
      ++baked_now;
      ++orphans;
    }
    log_line("graphs[", ended->capture, "].release();  // and its arenas");
    EXPECT_EQ(ended->held->size(), baked_now);
    for (arena_of_graph& one : ended->memory) end_arena(one);
    const std::size_t returned = device_.returned;
    std::erase_if(ended->deallocated, [&](void* first) {
      return std::ranges::any_of(graphs_, [&](graph const& other) {
        return &other != &*ended && std::ranges::count(other.deallocated, first) != 0;
      });
    });
    if (frozen_) {
      deferred_.insert(deferred_.end(), ended->deallocated.begin(), ended->deallocated.end());
      ended->held->release();
      EXPECT_EQ(device_.returned, returned);
      in_capture += ended->deallocated.empty() ? 0 : 1;
    } else {
      for (void* const first : ended->deallocated) contents_.remove(first);
      ended->held->release();
      EXPECT_EQ(device_.returned, returned + ended->deallocated.size());
    }
    graphs_.erase(ended);
  }

  void end_arena(arena_of_graph& ended) {
    // Its blocks in use are gone with it.
    std::erase_if(live_, [&](auto const& entry) {
      if (entry.second.arena != ended.arena.get()) return false;
      used_bytes_ -= entry.second.bytes;
      ++deallocations_;
      return true;
    });
    // Until now no byte in it has changed, whether a block was deallocated or not: each is still in the
    // graph.
    for (void* const first : ended.handed_out) contents_.remove(first);
    ended.arena.reset();
  }
  // An arena that dies before its graph, or while it is installed.
  void end_arena_early() {
    if (waiting_.empty()) return;
    auto chosen = waiting_.begin();
    log_line("delete the oldest arena that is no graph's;");
    if (chosen->arena.get() == installed_) installed_ = nullptr;
    end_arena(*chosen);
    waiting_.erase(chosen);
  }

  graph& graph_of(std::uint64_t capture) {
    return *std::find_if(graphs_.begin(), graphs_.end(),
                         [&](graph const& one) { return one.capture == capture; });
  }
  arenas::iterator installed_at() {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](arena_of_graph const& one) { return one.arena.get() == installed_; });
  }

  void check() const {
    const capture_switch_stats stats = switch_.stats();
    std::set<void*> in_graphs;
    for (graph const& one : graphs_) in_graphs.insert(one.deallocated.begin(), one.deallocated.end());
    const std::size_t waiting = deferred_.size() + in_graphs.size();
    EXPECT_EQ(stats.allocations, allocations_);
    EXPECT_EQ(stats.deallocations, deallocations_);
    EXPECT_EQ(stats.refused, refused_);
    EXPECT_EQ(stats.used_blocks, live_.size());
    EXPECT_EQ(stats.used_bytes, used_bytes_);
    EXPECT_EQ(stats.deferred_blocks, waiting);
    EXPECT_EQ(stats.frozen_threads, frozen_ ? 1u : 0u);
    EXPECT_EQ(switch_.is_frozen(), frozen_);
    EXPECT_EQ(switch_.has_arena(), installed_ != nullptr);
  }

  captured_device device_;
  recording_resource arena_memory_;
  capture_switch switch_{&device_};
  choices random_;
  shadow contents_;
  blocks live_;
  arenas waiting_;  // installed now, or to be the next graph's
  graphs graphs_;   // the last may be in capture
  std::vector<void*> deferred_;
  graph_arena* installed_ = nullptr;
  bool frozen_ = false;
  std::uint64_t capture_ = 0, allocations_ = 0, allocations_at_begin_ = 0, deallocations_ = 0, refused_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace tidemark::test
