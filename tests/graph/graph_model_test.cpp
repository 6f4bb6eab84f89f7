// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences beside models. Of a graph arena the
// model knows every address beforehand, and what may not be deallocated. Of a switch it knows whose each
// block is, and so when the upstream sees it again: captures begin and end, arenas are installed, cleared and
// die late, blocks cross the borders of captures, graphs hold on to blocks. No byte that a graph knows may
// change hands while the graph lives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_errors.hpp>
#include <tidemark/graph/rehearse.hpp>

#include "graph_subjects.hpp"
#include "recording_supply.hpp"
#include "resource_model.hpp"
#include "seeds.hpp"
#include "shadow.hpp"
#include "thread_storm.hpp"
#include "threaded_supply.hpp"

namespace tidemark::test {
namespace {

// ---- an arena ---------------------------------------------------------------------------------------------

constexpr std::size_t granule = graph_arena::default_alignment;

std::size_t rounded(std::size_t bytes) {
  return std::max<std::size_t>(bytes + granule - 1, granule) / granule * granule;
}

/// Over addresses that must not be touched, beside a model that says where each block must lie.
class arena_model {
 public:
  explicit arena_model(std::uint64_t seed) : random_{seed} {}

  std::size_t refused = 0, resets = 0, bad_frees = 0;

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 500) allocate();
    else if (what < 900) give_one_back();
    else if (what < 990) give_back_wrongly();
    else if (what < 993) try_reset();
    check();
  }

  void check_contents() const { arena_.check_invariants(); }

 private:
  static constexpr std::uintptr_t base = 0x1'0000'0000;
  static constexpr std::size_t size = 1 * MiB;
  using blocks = std::map<std::uintptr_t, std::size_t>;  // bytes as requested, by address

  void allocate() {
    const std::size_t bytes = random_() % 40 == 0 ? random_() % (size / 4) : random_() % 1500;
    const std::size_t align = std::size_t{1} << random_() % (random_() % 8 == 0 ? 17 : 9);
    const std::size_t step = std::max(align, granule);
    const std::uintptr_t place = (next_ + step - 1) / step * step;
    try {
      const auto address = reinterpret_cast<std::uintptr_t>(arena_.allocate(bytes, align));
      ASSERT_EQ(address, place) << bytes << " bytes aligned to " << align;
      ASSERT_LE(address + rounded(bytes), base + size) << "a block that lies beyond the end";
      next_ = address + rounded(bytes);
      used_bytes_ += rounded(bytes);
      live_.emplace(address, bytes);
      alignment_ = std::max(alignment_, step);
      ++allocations_;
      (void)rehearsal_->allocate(bytes, align);
    } catch (out_of_memory const& error) {
      EXPECT_GT(place + rounded(bytes), base + size) << "what fits is served";
      EXPECT_EQ(error.report().requested_bytes, bytes);
      EXPECT_EQ(error.report().largest_bytes, place < base + size ? base + size - place : 0);
      ++refused;
    }
    peak_blocks_ = std::max(peak_blocks_, live_.size());
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  }

  blocks::iterator any() {
    // Often the lowest or the highest, else one near an address by chance.
    if (const std::uint64_t which = random_() % 4; which == 0) return live_.begin();
    else if (which == 1) return std::prev(live_.end());
    const auto found = live_.lower_bound(base + random_() % size);
    return found != live_.end() ? found : live_.begin();
  }

  void give_one_back() {
    if (live_.empty()) return;
    const auto [address, bytes] = *any();
    arena_.deallocate(reinterpret_cast<void*>(address), bytes);
    used_bytes_ -= rounded(bytes);
    live_.erase(address);
    gone_.emplace_back(address, bytes);
    ++deallocations_;
  }

  void give_back_wrongly() {
    std::uintptr_t address = 0;
    std::size_t bytes = random_() % 2000;
    switch (random_() % 6) {
      case 0:  // twice
        if (gone_.empty()) return;
        std::tie(address, bytes) = gone_[random_() % gone_.size()];
        break;
      case 1:  // another size
        if (live_.empty()) return;
        address = any()->first;
        bytes =
            random_() % 2 == 0 ? bytes + rounded(live_[address]) + 1 : std::size_t{0} - 1 - random_() % 300;
        break;
      case 2:  // inside a block
        if (live_.empty()) return;
        std::tie(address, bytes) = *any();
        address += 1 + random_() % (rounded(bytes) - 1);
        break;
      case 3:
        address = base - 1 - random_() % 1000;
        break;
      case 4:
        address = base + size + random_() % 1000;
        break;
      default:
        address = base + random_() % size;
    }
    if (const auto live = live_.find(address); live != live_.end() && rounded(live->second) == rounded(bytes))
      return;
    arena_.deallocate(reinterpret_cast<void*>(address), bytes);
    ++bad_frees;
    ++bad_frees_since_reset_;
  }

  void try_reset() {
    // What a rehearsal says of the same requests, and an arena of exactly that size.
    EXPECT_EQ(arena_.layout(), stage_->layout());
    if (random_() % 2 == 0) {
      while (!live_.empty()) give_one_back();
    }
    try {
      arena_.reset();
      EXPECT_TRUE(live_.empty());
      next_ = base;
      alignment_ = granule;
      allocations_ = deallocations_ = 0;
      peak_blocks_ = peak_bytes_ = 0;
      bad_frees_since_reset_ = 0;
      gone_.clear();
      rehearse_anew();
      ++resets;
    } catch (allocator_busy const& error) {
      EXPECT_EQ(error.blocks(), live_.size());
      EXPECT_FALSE(live_.empty());
    }
  }

  void rehearse_anew() { rehearsal_ = &stage_.emplace(); }

  void check() const {
    const graph_arena_stats stats = arena_.stats();
    EXPECT_EQ(stats.allocations, allocations_);
    EXPECT_EQ(stats.deallocations, deallocations_);
    EXPECT_EQ(stats.bad_deallocations, bad_frees_since_reset_);
    EXPECT_EQ(stats.used_blocks, live_.size());
    EXPECT_EQ(stats.used_bytes, used_bytes_);
    EXPECT_EQ(stats.peak_blocks, peak_blocks_);
    EXPECT_EQ(stats.peak_bytes, peak_bytes_);
    EXPECT_EQ(stats.high_water_bytes, next_ - base);
    EXPECT_EQ(arena_.layout().alignment, alignment_);
  }

  graph_arena arena_{byte_range{base, size}, {.bad_deallocate = bad_deallocate_policy::ignore}};
  std::optional<rehearsal> stage_{std::in_place};
  std::pmr::memory_resource* rehearsal_ = &*stage_;
  std::mt19937_64 random_;
  blocks live_;
  std::vector<std::pair<std::uintptr_t, std::size_t>> gone_;
  std::uintptr_t next_ = base;
  std::size_t alignment_ = granule;
  std::size_t used_bytes_ = 0, peak_bytes_ = 0, peak_blocks_ = 0;
  std::uint64_t allocations_ = 0, deallocations_ = 0, bad_frees_since_reset_ = 0;
};

TEST(graph_arena_model, knows_every_address_beforehand) {
  std::size_t refused = 0, resets = 0, bad_frees = 0;
  run_for_seeds([&](std::uint64_t seed, auto run) {
    arena_model model{seed};
    run(model);
    refused += model.refused;
    resets += model.resets;
    bad_frees += model.bad_frees;
  });
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(refused, in_this_length(1000));
  EXPECT_GT(resets, in_this_length(100));
  EXPECT_GT(bad_frees, in_this_length(10'000));
}

// ---- a switch ---------------------------------------------------------------------------------------------

/// What a switch stands on. A device refuses to free memory while its stream captures.
class captured_device final : public std::pmr::memory_resource {
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
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

class switch_model {
 public:
  explicit switch_model(std::uint64_t seed) : random_{seed} {}
  switch_model(switch_model const&) = delete;
  switch_model& operator=(switch_model const&) = delete;
  ~switch_model() {
    if (frozen_) end_capture();
    if (installed_ != nullptr) clear();
    while (!graphs_.empty()) end_graph(graphs_.begin());
    while (!live_.empty()) give_back(live_.begin());
    check();
    EXPECT_EQ(device_.memory.outstanding, 0u);
  }

  std::size_t captures = 0, baked = 0, deferred = 0, late = 0, orphans = 0, empty_captures = 0,
              in_capture = 0, in_two = 0;

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 450) allocate();
    else if (what < 850) {
      if (!live_.empty()) give_back(any());
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
    std::vector<void*> given_back;  // baked, and not in use
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
    void* first = nullptr;
    try {
      first = switch_.allocate(bytes, align);
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

  void give_back(blocks::iterator chosen) {
    const auto [first, of] = *chosen;
    live_.erase(chosen);
    used_bytes_ -= of.bytes;
    ++deallocations_;
    const std::size_t returned = device_.returned;
    const std::size_t in_use = of.arena != nullptr ? of.arena->stats().used_blocks : 0;
    // What goes to the upstream may be someone else's from then on.
    const bool goes_at_once = of.arena == nullptr && of.capture == 0 && !frozen_;
    if (goes_at_once) contents_.remove(first);
    switch_.deallocate(first, of.bytes, of.align);
    if (of.arena != nullptr) {
      EXPECT_EQ(of.arena->stats().used_blocks, in_use - 1);
      late += !frozen_ || of.arena != installed_ ? 1 : 0;
    } else if (of.capture != 0) {
      graph_of(of.capture).given_back.push_back(first);
      if (frozen_ && of.capture != capture_) {
        graphs_.back().given_back.push_back(first);
        ++in_two;
      }
    } else if (frozen_) {
      graphs_.back().given_back.push_back(first);
      ++deferred;
    }
    EXPECT_EQ(device_.returned, returned + (goes_at_once ? 1 : 0));
    if (of.arena == nullptr && !goes_at_once) EXPECT_TRUE(device_.memory.holds(first)) << "it waits";
  }

  void install() {
    arena_of_graph made{std::make_unique<graph_arena>(16 * KiB, &arena_memory_), {}};
    installed_ = made.arena.get();
    waiting_.push_back(std::move(made));
    switch_.install_arena(*installed_);
    EXPECT_THROW(switch_.install_arena(*installed_), std::logic_error);
  }
  void clear() {
    EXPECT_EQ(switch_.clear_arena(), installed_);
    EXPECT_EQ(switch_.clear_arena(), nullptr);
    installed_ = nullptr;
  }

  void begin_capture() {
    graphs_.push_back({.capture = ++capture_, .held = {}, .memory = {}, .given_back = {}});
    allocations_at_begin_ = allocations_;
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
    made.held = switch_.unfreeze();
    EXPECT_EQ(device_.returned, returned + deferred_.size()) << "each that waited, once";
    for (void* const first : deferred_) EXPECT_FALSE(device_.memory.holds(first));
    deferred_.clear();
    // It owns every arena that is not installed any more.
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const auto current = one++;
      if (current->arena.get() != installed_) made.memory.splice(made.memory.end(), waiting_, current);
    }
    empty_captures += allocations_ == allocations_at_begin_ ? 1 : 0;
  }

  void end_graph(graphs::iterator ended) {
    if (!ended->held) return;  // it is captured still
    std::size_t baked_now = ended->given_back.size();
    for (auto& [first, of] : live_) {
      if (of.capture != ended->capture) continue;
      of.capture = 0;  // from now on a block like any other
      ++baked_now;
      ++orphans;
    }
    EXPECT_EQ(ended->held->size(), baked_now);
    for (arena_of_graph& one : ended->memory) end_arena(one);
    const std::size_t returned = device_.returned;
    std::erase_if(ended->given_back, [&](void* first) {
      return std::ranges::any_of(graphs_, [&](graph const& other) {
        return &other != &*ended && std::ranges::count(other.given_back, first) != 0;
      });
    });
    if (frozen_) {
      deferred_.insert(deferred_.end(), ended->given_back.begin(), ended->given_back.end());
      ended->held->release();
      EXPECT_EQ(device_.returned, returned);
      in_capture += ended->given_back.empty() ? 0 : 1;
    } else {
      for (void* const first : ended->given_back) contents_.remove(first);
      ended->held->release();
      EXPECT_EQ(device_.returned, returned + ended->given_back.size());
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
    for (graph const& one : graphs_) in_graphs.insert(one.given_back.begin(), one.given_back.end());
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
  std::mt19937_64 random_;
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

TEST(capture_switch_model, knows_whose_each_block_is) {
  std::size_t captures = 0, baked = 0, deferred = 0, late = 0, orphans = 0, empty_captures = 0,
              in_capture = 0, in_two = 0;
  run_for_seeds([&](std::uint64_t seed, auto run) {
    switch_model model{seed};
    run(model);
    captures += model.captures;
    baked += model.baked;
    deferred += model.deferred;
    late += model.late;
    orphans += model.orphans;
    empty_captures += model.empty_captures;
    in_capture += model.in_capture;
    in_two += model.in_two;
  });
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(captures, in_this_length(5000));
  EXPECT_GT(baked, in_this_length(5000));
  EXPECT_GT(deferred, in_this_length(5000));
  EXPECT_GT(late, in_this_length(5000));
  EXPECT_GT(orphans, in_this_length(1000));
  EXPECT_GT(empty_captures, in_this_length(50));
  EXPECT_GT(in_capture, in_this_length(1000));
  EXPECT_GT(in_two, in_this_length(1000));
}

// ---- a switch among threads -------------------------------------------------------------------------------

/// Sees to it that no thread that captures gives anything back, and that each block comes back once.
class threaded_device final : public std::pmr::memory_resource {
 public:
  static inline thread_local bool captures = false;
  explicit threaded_device(std::size_t max_blocks) : once_{max_blocks} {}
  [[nodiscard]] std::size_t outstanding() const noexcept { return once_.outstanding(); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return once_.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    EXPECT_FALSE(captures) << "a block goes back in a capture of its thread";
    once_.deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  each_once_memory once_;
};

TEST(capture_switch_model, is_right_for_threads_whose_blocks_change_hands) {
  const std::uint64_t first_seed = number_from_environment("TIDEMARK_SEED", 1);
  for (std::uint64_t seed = first_seed; seed < first_seed + 5; ++seed) {
    SCOPED_TRACE("repeat with TIDEMARK_SEED=" + std::to_string(seed));
    constexpr std::size_t steps = 5000;
    threaded_device device{storm_threads * steps};
    std::atomic<std::uint64_t> allocations{0};
    {
      capture_switch memory{&device};
      std::array<std::atomic<void*>, 128> exchange{};
      std::latch all_done{storm_threads}, all_given_back{storm_threads};
      on_threads([&](std::size_t thread) {
        std::mt19937_64 random{seed * storm_threads + thread};
        graph_arena own{byte_range{(thread + 1) << 40, 16 * MiB}};
        std::list<baked_blocks> graphs;
        const auto put = [&](std::size_t i, void* block) {
          if (void* const other = exchange[i].exchange(block)) memory.deallocate(other, 24);
        };
        for (std::size_t i = 0; i < steps; ++i) {
          const std::uint64_t what = random() % 100;
          if (what < 80) {
            put(random() % exchange.size(),
                random() % 3 == 0 ? nullptr : (allocations.fetch_add(1), memory.allocate(24)));
          } else if (what < 86) {
            if (!memory.has_arena()) memory.install_arena(own);
            else memory.clear_arena();
          } else if (what < 92) {
            if (!memory.is_frozen()) memory.freeze(), device.captures = true;
          } else if (what < 98) {
            device.captures = false;
            graphs.push_back(memory.unfreeze());
          } else if (!device.captures && graphs.size() > 4) {
            graphs.pop_front();
          }
        }
        device.captures = false;
        memory.clear_arena();
        graphs.push_back(memory.unfreeze());
        all_done.arrive_and_wait();
        for (std::size_t i = thread; i < exchange.size(); i += storm_threads) put(i, nullptr);
        all_given_back.arrive_and_wait();
        EXPECT_EQ(own.stats().used_blocks, 0u);
        own.check_invariants();
      });
      memory.check_invariants();
      const capture_switch_stats stats = memory.stats();
      EXPECT_EQ(stats.allocations, allocations.load());
      EXPECT_EQ(stats.used_blocks, 0u);
      EXPECT_EQ(stats.used_bytes, 0u);
      EXPECT_EQ(stats.deferred_blocks, 0u);
      EXPECT_EQ(stats.frozen_threads, 0u);
    }
    EXPECT_EQ(device.outstanding(), 0u);
  }
}

// ---- as any resource --------------------------------------------------------------------------------------

TEST(resource_model, agrees_with_the_graph_arena) { run_resource_model<graph_arena_subject>(); }
TEST(resource_model, agrees_with_the_switch_outside_captures) {
  run_resource_model<capture_switch_subject>();
}
TEST(resource_model, agrees_with_the_frozen_switch) { run_resource_model<frozen_switch_subject>(); }
TEST(resource_model, agrees_with_the_rehearsal) { run_resource_model<rehearsal_subject>(); }

}  // namespace
}  // namespace tidemark::test
