// SPDX-License-Identifier: Apache-2.0
// Random sequences of all operations of a pool, compared with a model: the live blocks and the counts. After
// each step the statistics equal the model's; the pool's invariants are checked now and then.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/pool/pool_options.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "shadow.hpp"

namespace tidemark::test {

template <class Subject>
class pool_model {
 public:
  pool_model(Subject& subject, choices random) : subject_{subject}, random_{std::move(random)} {}
  ~pool_model() {
    while (!held_.empty()) free_one(held_.size() - 1);
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    // Waves, so that lists get long and empty.
    const bool rising = (steps_++ / 2000) % 2 == 0;
    if (what < 980) {
      if (held_.empty() || random_() % 100 < (rising ? 60 : 40)) allocate();
      else free_one(random_() % held_.size());
    } else if (what < 990) trim(random_() % 3 == 0 ? 0 : random_() % (64 * KiB));
    else if (what < 994) reset();
    else if (what < 995) release();
    else if (what < 1000) subject_.check();
    check();
  }

  void check_contents() const { blocks_.check_all(); }

  std::uint64_t hits = 0, large_hits = 0, stranded = 0, trims_that_returned_memory = 0;

 private:
  auto& pool() { return subject_.resource(); }

  void allocate() {
    const std::uint64_t kind = random_() % 100;
    const std::size_t bytes = kind < 80   ? random_() % 300
                              : kind < 95 ? random_() % 17'000
                              : kind < 98 ? 20'000 + random_() % 8 * 5'000  // as programs do: the same again
                                          : random_() % 100'000;
    const std::size_t align = std::size_t{1} << random_() % (random_() % 16 == 0 ? 10 : 5);
    const pool_stats before = pool().stats();
    void* const first = log_allocate("memory", pool(), bytes, align);
    const pool_stats after = pool().stats();
    ++allocations_;
    const std::size_t block_bytes = after.used_bytes - before.used_bytes;
    const bool is_large = bytes > pool().options().size_classes.back();
    const bool trims = pool().options().max_cached_bytes < 1 * MiB;  // in any call
    if (after.hits > before.hits) {
      ++hits;
      if (is_large) {
        ++large_hits;
        EXPECT_EQ(after.cached_bytes + after.stranded_bytes,
                  before.cached_bytes + before.stranded_bytes - block_bytes);
      }
      if (trims) EXPECT_LE(after.held_bytes, before.held_bytes) << "a hit asks the upstream for nothing";
      else EXPECT_EQ(after.held_bytes, before.held_bytes) << "a hit asks the upstream for nothing";
    } else if (!trims) {
      EXPECT_GE(after.held_bytes, before.held_bytes + bytes) << "a miss takes memory from the upstream";
    }
    used_bytes_ += block_bytes;
    requested_bytes_ += bytes;
    EXPECT_GE(block_bytes, bytes);
    if (is_large) {
      EXPECT_LE(block_bytes, bytes + bytes / 4);
    }
    blocks_.add(first, bytes, align);
    held_.push_back({first, bytes, align, block_bytes});
  }

  void free_one(std::size_t i) {
    const block chosen = remove_at(held_, i);
    blocks_.remove(chosen.first);
    log_deallocate("memory", pool(), chosen.first, chosen.bytes, chosen.align);
    ++deallocations_;
    used_bytes_ -= chosen.block_bytes;
    requested_bytes_ -= chosen.bytes;
  }

  void trim(std::size_t target) {
    const pool_stats before = pool().stats();
    log_line("memory.trim(", target, ");");
    const std::size_t returned = pool().trim(target);
    const pool_stats after = pool().stats();
    EXPECT_LE(after.cached_bytes, std::max(target, std::min(before.cached_bytes, target)));
    EXPECT_EQ(after.held_bytes, before.held_bytes - returned);
    EXPECT_EQ(after.used_bytes, before.used_bytes);
    stranded += after.stranded_bytes > before.stranded_bytes ? 1 : 0;
    trims_that_returned_memory += returned > 0 ? 1 : 0;
  }

  void reset() {
    log_line("memory.reset_stats();");
    pool().reset_stats();
    allocations_ = deallocations_ = 0;
    peak_ = 0;
  }

  void release() {
    check_contents();
    log_line("memory.release();");
    pool().release();
    deallocations_ += held_.size();
    held_.clear();
    blocks_.clear();
    used_bytes_ = requested_bytes_ = 0;
    EXPECT_EQ(pool().stats().held_bytes, 0u);
  }

  void check() {
    const pool_stats now = pool().stats();
    EXPECT_EQ(now.allocations, allocations_);
    EXPECT_EQ(now.deallocations, deallocations_);
    EXPECT_EQ(now.hits + now.misses, now.allocations);
    EXPECT_EQ(now.used_blocks, held_.size());
    EXPECT_EQ(now.used_bytes, used_bytes_);
    EXPECT_EQ(now.requested_bytes, requested_bytes_);
    EXPECT_EQ(now.held_bytes, now.used_bytes + now.cached_bytes + now.stranded_bytes);
    peak_ = std::max(peak_, now.cached_bytes);
    EXPECT_GE(now.peak_cached_bytes, peak_);
    EXPECT_LE(now.cached_bytes, pool().options().max_cached_bytes);
  }

  struct block {
    void* first;
    std::size_t bytes, align, block_bytes;
  };

  Subject& subject_;
  choices random_;
  std::vector<block> held_;
  shadow blocks_;
  std::uint64_t allocations_ = 0, deallocations_ = 0, steps_ = 0;
  std::size_t used_bytes_ = 0, requested_bytes_ = 0, peak_ = 0;
};

}  // namespace tidemark::test
