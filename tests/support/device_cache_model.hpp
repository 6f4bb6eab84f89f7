// SPDX-License-Identifier: Apache-2.0
// Random sequences on a cache of a fake device with memory on the host. Blocks are deallocated while work of
// other streams still uses them. When such work runs, it must find the old contents in its block.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "choices.hpp"
#include "program_log.hpp"
#include "shadow.hpp"
#include "touchable_device.hpp"

namespace tidemark::test {

using small_device = touchable_device_of<512 * KiB>;

/// Blocks that works of a device use, and the works.
class device_works {
 public:
  explicit device_works(fake_device& device) : device_{device} {}

  shadow blocks;  ///< that are allocated, or that a work uses
  std::size_t run = 0;

  /// A work on a stream uses the block until it has run.
  void use(void* block, gpu::stream_handle stream) {
    works_.push_back(std::make_unique<work>(work{this, block}));
    ASSERT_EQ(device_.launch_on_host(stream, &ended, works_.back().get()), gpu::status::success);
  }
  void remove_ended() {
    std::erase_if(works_, [](auto const& each) { return each->block == nullptr; });
  }
  [[nodiscard]] std::size_t pending() const {
    std::size_t n = 0;
    for (auto const& each : works_) n += each->block != nullptr ? 1 : 0;
    return n;
  }

 private:
  struct work {
    device_works* all;
    void* block;  // null: it has run
  };
  static void ended(void* state) {
    auto& self = *static_cast<work*>(state);
    self.all->blocks.remove(self.block);  // looks at its content
    self.block = nullptr;
    ++self.all->run;
  }

  fake_device& device_;
  std::vector<std::unique_ptr<work>> works_;
};

struct held_block {
  void* first;
  std::size_t bytes, align;
};

class device_cache_model {
 public:
  device_cache_model(device_cache_options options, small_device& supply, choices random)
      : supply_{supply},
        works_{supply.device},
        cache_{with(options, supply.stream), supply.device},
        random_{std::move(random)} {}
  ~device_cache_model() {
    while (!held_.empty()) free_one(held_.size() - 1);
    supply_.device.run_all();
  }

  void step() {
    const std::uint64_t what = random_() % 1000;
    const bool rising = (steps_++ / 500) % 2 == 0;
    if (what < 800) {
      if (held_.empty() || random_() % 100 < (rising ? 60 : 40)) allocate();
      else free_one(random_() % held_.size());
    } else if (what < 980) {
      supply_.device.run(streams_[random_() % 2]);
    } else if (what < 995) {
      collect(what >= 990);
    } else {
      cache_.check_invariants();
    }
    if (steps_ % 8 == 0) check();
  }

  void check_contents() const { works_.blocks.check_all(); }

  std::size_t hits = 0, refused = 0, trims = 0, works_run = 0;
  void count_up() {
    hits += cache_.stats().hits;
    trims += supply_.device.count("cuMemUnmap");
    works_run += works_.run;
  }

 private:
  static device_cache_options with(device_cache_options options, gpu::stream_handle stream) {
    options.stream = stream;
    return options;
  }

  void allocate() {
    // Few sizes, so that they come again, and sometimes one that needs room.
    const std::size_t bytes = random_() % 50 == 0 ? 100 * KiB : 700 * (random_() % 8);
    const std::size_t align = random_() % 8 == 0 ? 512 : 256;
    const reuse_cache_stats before = cache_.stats();
    try {
      void* const first = log_allocate("cache", cache_, bytes, align);
      works_.blocks.add(first, bytes, align);  // overlaps no block that a work still uses
      held_.push_back({first, bytes, align});
    } catch (std::bad_alloc const&) {
      ++refused;
      EXPECT_EQ(cache_.stats().used_bytes, before.used_bytes);
      EXPECT_EQ(cache_.stats().cached_bytes + cache_.stats().pending_bytes, 0u) << "all was drained before";
      EXPECT_EQ(works_.pending(), 0u) << "the work was awaited";
      while (held_.size() > 4) free_one(0);
    }
  }

  void free_one(std::size_t i) {
    const held_block gone = remove_at(held_, i);
    const std::uint64_t how = random_() % 4;
    if (how < 2) {
      log_line("use(", block_at{gone.first}, ", streams[", how, "]); cache.deallocate(", block_at{gone.first},
               ", ", gone.bytes, ", ", gone.align, ", streams[", how, "]);");
      works_.use(gone.first, streams_[how]);
      cache_.deallocate(gone.first, gone.bytes, gone.align, streams_[how]);
    } else {
      log_line("cache.deallocate(", block_at{gone.first}, ", ", gone.bytes, ", ", gone.align,
               how == 2 ? ");" : ", stream);");
      works_.blocks.remove(gone.first);
      if (how == 2) cache_.deallocate(gone.first, gone.bytes, gone.align);
      else cache_.deallocate(gone.first, gone.bytes, gone.align, supply_.stream);
    }
  }

  void collect(bool force) {
    log_line("cache.collect(", force ? "true" : "false", ");");
    (void)cache_.collect(force);
    EXPECT_EQ(cache_.stats().cached_bytes, 0u);
    if (force) EXPECT_EQ(works_.pending(), 0u) << "the work was awaited";
  }

  void check() {
    works_.remove_ended();
    std::size_t used = 0;
    for (held_block const& each : held_) used += each.bytes;
    const reuse_cache_stats now = cache_.stats();
    EXPECT_EQ(now.used_blocks, held_.size());
    EXPECT_EQ(now.used_bytes, used);
    EXPECT_EQ(now.held_bytes, now.used_bytes + now.cached_bytes + now.pending_bytes);
    EXPECT_LE(now.held_bytes, supply_.outstanding) << "the driver rounds up";
    EXPECT_LE(now.cached_bytes, *cache_.options().max_cached_bytes);
  }

  small_device& supply_;
  gpu::stream third_{supply_.device};
  std::array<gpu::stream_handle, 2> streams_{supply_.other, third_};
  device_works works_;  // before the cache, whose end lets them run
  device_cache cache_;
  choices random_;
  std::vector<held_block> held_;
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::test
