// SPDX-License-Identifier: Apache-2.0
// Random sequences on a graph arena over addresses that must not be touched, compared with a model that knows
// the address of each block.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory_resource>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>

#include "choices.hpp"
#include "program_log.hpp"

namespace tidemark::test {

inline constexpr std::size_t graph_granule = graph_arena::default_alignment;

inline std::size_t rounded_to_granules(std::size_t bytes) {
  return std::max<std::size_t>(bytes + graph_granule - 1, graph_granule) / graph_granule * graph_granule;
}

/// A graph arena over addresses that must not be touched, compared with a model that knows the address of
/// each block.
class graph_arena_model {
 public:
  explicit graph_arena_model(choices random) : random_{std::move(random)} {}

  std::size_t refused = 0, resets = 0, bad_frees = 0;

  void step() {
    const std::uint64_t what = random_() % 1000;
    if (what < 500) allocate();
    else if (what < 900) deallocate_one();
    else if (what < 990) deallocate_wrongly();
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
    const std::size_t step = std::max(align, graph_granule);
    const std::uintptr_t place = (next_ + step - 1) / step * step;
    log_line("arena.allocate(", bytes, ", ", align, ");");
    try {
      const auto address = reinterpret_cast<std::uintptr_t>(arena_.allocate(bytes, align));
      ASSERT_EQ(address, place) << bytes << " bytes aligned to " << align;
      ASSERT_LE(address + rounded_to_granules(bytes), base + size) << "a block that lies beyond the end";
      next_ = address + rounded_to_granules(bytes);
      used_bytes_ += rounded_to_granules(bytes);
      live_.emplace(address, bytes);
      alignment_ = std::max(alignment_, step);
      ++allocations_;
      (void)rehearsal_->allocate(bytes, align);
    } catch (out_of_memory const& error) {
      EXPECT_GT(place + rounded_to_granules(bytes), base + size) << "a request that fits is served";
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

  void deallocate_one() {
    if (live_.empty()) return;
    const auto [address, bytes] = *any();
    log_line("arena.deallocate(at(", address - base, "), ", bytes, ");");
    arena_.deallocate(reinterpret_cast<void*>(address), bytes);
    used_bytes_ -= rounded_to_granules(bytes);
    live_.erase(address);
    gone_.emplace_back(address, bytes);
    ++deallocations_;
  }

  void deallocate_wrongly() {
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
        bytes = random_() % 2 == 0 ? bytes + rounded_to_granules(live_[address]) + 1
                                   : std::size_t{0} - 1 - random_() % 300;
        break;
      case 2:  // inside a block
        if (live_.empty()) return;
        std::tie(address, bytes) = *any();
        address += 1 + random_() % (rounded_to_granules(bytes) - 1);
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
    if (const auto live = live_.find(address);
        live != live_.end() && rounded_to_granules(live->second) == rounded_to_granules(bytes))
      return;
    log_line("arena.deallocate(at(", address - base, "), ", bytes, ");  // wrong");
    const violation_handler handler = set_violation_handler([](violation const&) {});
    arena_.deallocate(reinterpret_cast<void*>(address), bytes);
    (void)set_violation_handler(handler);
    ++bad_frees;
    ++bad_frees_since_reset_;
  }

  void try_reset() {
    // Compares with the rehearsal of the same requests, and with an arena of exactly that size.
    EXPECT_EQ(arena_.layout(), stage_->layout());
    if (random_() % 2 == 0) {
      while (!live_.empty()) deallocate_one();
    }
    log_line("arena.reset();");
    try {
      arena_.reset();
      EXPECT_TRUE(live_.empty());
      next_ = base;
      alignment_ = graph_granule;
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

  graph_arena arena_{byte_range{base, size}};
  std::optional<rehearsal> stage_{std::in_place};
  std::pmr::memory_resource* rehearsal_ = &*stage_;
  choices random_;
  blocks live_;
  std::vector<std::pair<std::uintptr_t, std::size_t>> gone_;
  std::uintptr_t next_ = base;
  std::size_t alignment_ = graph_granule;
  std::size_t used_bytes_ = 0, peak_bytes_ = 0, peak_blocks_ = 0;
  std::uint64_t allocations_ = 0, deallocations_ = 0, bad_frees_since_reset_ = 0;
};

}  // namespace tidemark::test
