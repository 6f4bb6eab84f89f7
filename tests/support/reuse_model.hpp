// SPDX-License-Identifier: Apache-2.0
// Random requests, blocks deallocated with and without fences, fences that complete in any order, and
// collections, compared with a model that knows each block that the cache keeps and whether it may be reused.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "choices.hpp"
#include "program_log.hpp"
#include "reuse_subjects.hpp"
#include "shadow.hpp"

namespace tidemark::test {

class reuse_model {
 public:
  reuse_model(reuse_cache_options const& options, recording_resource& upstream, choices random)
      : cache_{options}, upstream_{upstream}, random_{std::move(random)} {}
  ~reuse_model() {
    while (!held_.empty()) free_one(held_.size() - 1);
    for (auto& [address, kept] : kept_) complete(address, kept);
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    const bool rising = (steps_++ / 1000) % 2 == 0;
    if (what < 800) {
      if (held_.empty() || random_() % 100 < (rising ? 60 : 40)) allocate();
      else free_one(random_() % held_.size());
    } else if (what < 990) {
      complete_any();
    } else if (what < 997) {
      collect(what >= 995);
    } else {
      cache_.check_invariants();
    }
    if (steps_ % 8 == 0) check();  // O(blocks)
  }

  void check_contents() const { blocks_.check_all(); }

  std::uint64_t hits_behind_fences = 0, misses_beside_pending = 0, collected = 0;

 private:
  struct block {
    void* first;
    std::size_t bytes, align;
  };
  struct kept_block {
    std::size_t bytes, align;
    std::unique_ptr<event> fence;  // null: ready at once
    std::uint64_t number;          // fences of one order complete in the order of their numbers
  };
  using kept_blocks = std::map<void*, kept_block>;

  void allocate() {
    const std::size_t bytes = 64 * (random_() % 8);
    const std::size_t align = random_() % 4 == 0 ? 64 : 16;
    const reuse_cache_stats before = cache_.stats();
    void* const first = log_allocate("cache", cache_, bytes, align);
    const auto fits = [&](auto const& entry) {
      return entry.second.bytes == bytes && entry.second.align == align;
    };
    if (cache_.stats().hits > before.hits) {
      const auto found = kept_.find(first);
      ASSERT_NE(found, kept_.end()) << "a hit is a block that was deallocated";
      EXPECT_TRUE(fits(*found)) << "the block has exactly this size and alignment";
      if (event const* const fence = found->second.fence.get()) {
        EXPECT_TRUE(fence->completed());
        EXPECT_EQ(fence->destroyed, 1);
        ++hits_behind_fences;
      }
      kept_.erase(found);
    } else {
      kept_.erase(first);  // the upstream had it again
      remove_gone();
      misses_beside_pending += std::ranges::any_of(kept_, fits) ? 1 : 0;
      const auto unfinished = std::ranges::count_if(kept_, [](auto const& entry) {
        return entry.second.fence != nullptr && !entry.second.fence->completed();
      });
      if (unfinished <= 32) {  // which is the number of them that one request queries
        EXPECT_TRUE(std::ranges::none_of(kept_, [&](auto const& entry) {
          return fits(entry) && (entry.second.fence == nullptr || entry.second.fence->completed());
        })) << "a reusable block is reused";
      }
    }
    blocks_.add(first, bytes, align);
    held_.push_back({first, bytes, align});
  }

  void free_one(std::size_t i) {
    const block chosen = remove_at(held_, i);
    kept_block& kept = kept_[chosen.first] = {chosen.bytes, chosen.align, nullptr, ++deallocations_};
    if (random_() % 3 == 0) {
      blocks_.remove(chosen.first);
      log_deallocate("cache", cache_, chosen.first, chosen.bytes, chosen.align);
    } else {
      kept.fence = std::make_unique<event>();
      kept.fence->wait_completes = false;
      if (const std::size_t order = random_() % 4; order < orders_.size())
        kept.fence->order = &orders_[order];
      log_line("cache.deallocate_after(", block_at{chosen.first}, ", ", chosen.bytes, ", ", chosen.align,
               ", fence_of(", block_at{chosen.first}, "));");
      cache_.deallocate_after(chosen.first, chosen.bytes, chosen.align, kept.fence->fence());
    }
  }

  // The device is done with a block: until now it must not have changed.
  void complete(void* address, kept_block& kept) {
    if (kept.fence == nullptr || kept.fence->completed()) return;
    for (auto& [earlier, other] : kept_) {
      if (is_before(other, kept)) complete_one(earlier, other);
    }
    complete_one(address, kept);
  }
  static bool is_before(kept_block const& a, kept_block const& b) {
    return a.fence != nullptr && !a.fence->completed() && a.fence->order != nullptr &&
           a.fence->order == b.fence->order && a.number < b.number;
  }
  void complete_one(void* address, kept_block& kept) {
    blocks_.remove(address);
    log_line("complete(fence_of(", block_at{address}, "));");
    kept.fence->complete();
  }

  void complete_any() {
    if (kept_.empty()) return;
    auto any = kept_.begin();
    std::advance(any, random_() % std::min<std::size_t>(kept_.size(), 50));
    complete(any->first, any->second);
  }

  void collect(bool force) {
    if (force) {
      for (auto& [address, kept] : kept_) complete(address, kept);  // else the cache would wait for ever
    }
    const std::size_t outstanding = upstream_.outstanding;
    log_line("cache.collect(", force ? "true" : "false", ");");
    const std::size_t returned = cache_.collect(force);
    EXPECT_EQ(upstream_.outstanding, outstanding - returned);
    EXPECT_EQ(cache_.stats().cached_bytes, 0u);
    if (force) EXPECT_EQ(cache_.stats().pending_bytes, 0u);
    for (auto const& [address, kept] : kept_) {
      if (kept.fence != nullptr && kept.fence->completed()) EXPECT_EQ(kept.fence->destroyed, 1);
    }
    collected += returned > 0 ? 1 : 0;
    remove_gone();
  }

  // Forgets blocks that were returned to the upstream, which may reuse their addresses.
  void remove_gone() {
    std::erase_if(kept_, [&](auto const& entry) { return !upstream_.holds(entry.first); });
  }

  void check() {
    remove_gone();
    const reuse_cache_stats now = cache_.stats();
    std::size_t used = 0;
    for (block const& one : held_) used += one.bytes;
    EXPECT_EQ(now.used_blocks, held_.size());
    EXPECT_EQ(now.used_bytes, used);
    EXPECT_EQ(now.held_bytes, now.used_bytes + now.cached_bytes + now.pending_bytes);
    EXPECT_EQ(now.held_bytes, upstream_.outstanding);
    std::size_t kept = 0, not_done = 0;
    for (auto const& [address, one] : kept_) {
      kept += one.bytes;
      not_done += one.fence != nullptr && !one.fence->completed() ? one.bytes : 0;
    }
    EXPECT_EQ(now.cached_bytes + now.pending_bytes, kept);
    EXPECT_GE(now.pending_bytes, not_done) << "a block with unfinished work is never ready";
    const std::size_t limit = cache_.options().max_cached_bytes;
    if (limit != 0) EXPECT_LE(now.cached_bytes, limit);
  }

  kept_blocks kept_;  // before the cache, which destroys the fences of its kept blocks
  reuse_cache cache_;
  recording_resource& upstream_;
  choices random_;
  std::vector<block> held_;
  shadow blocks_;
  std::array<char, 3> orders_{};  // three streams; other fences have no order
  std::uint64_t deallocations_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::test
