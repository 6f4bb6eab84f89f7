// SPDX-License-Identifier: Apache-2.0
// Strategy: real threads allocate at once, at random, in all ways there are; between two barriers one of them
// marks, rewinds, resets or trims. Each thread knows what it wrote in which block. After each round no two
// blocks of any threads overlap, what was not freed holds what was written, and the invariants hold.
#include <tidemark/arena/shared_arena.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "run_length.hpp"

namespace tidemark {
namespace {

constexpr std::size_t threads = 3;

struct block {
  unsigned char* first;
  std::size_t bytes;
  unsigned char fill;
};

/// Counts those that live, and says when one is destroyed twice.
struct counted {
  explicit counted(std::atomic<long>& of) : live{&of} { ++*live; }
  counted(counted const&) = delete;
  counted& operator=(counted const&) = delete;
  ~counted() {
    EXPECT_EQ(canary, 0x600DU);
    canary = 0;
    --*live;
  }
  std::atomic<long>* live;
  unsigned canary = 0x600DU;
};

class team_model {
 public:
  team_model(std::uint64_t seed, bool places)
      : seed_{seed},
        places_{places},
        team_{{.reserve = 1 * MiB, .commit_step = 16 * KiB, .retain = 4 * MiB, .name = "model"},
              {.threads = places ? threads : 0, .min_extent_bytes = 4 * KiB, .max_extent_bytes = 32 * KiB}} {}

  void run(std::size_t rounds) {
    std::barrier meeting{static_cast<std::ptrdiff_t>(threads)};
    std::vector<std::thread> team;
    for (std::size_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        std::mt19937_64 random{seed_ * threads + t};
        for (std::size_t round = 0; round < rounds; ++round) {
          work(t, random);
          meeting.arrive_and_wait();
          if (t == round % threads) rewind_sometimes(random);
          meeting.arrive_and_wait();
          if (!places_ && random() % 4 == 0) team_.leave();
        }
      });
    }
    for (std::thread& thread : team) thread.join();
    team_.reset();
    EXPECT_EQ(objects_.load(), 0);
    EXPECT_EQ(team_.stats().used_bytes, 0u);
  }

 private:
  // What a thread does between two barriers.
  void work(std::size_t t, std::mt19937_64& random) {
    std::vector<block>& blocks = blocks_[t];
    auto local = places_ ? team_.local(t) : team_.local();
    const std::size_t steps = random() % 60;
    for (std::size_t i = 0; i < steps; ++i) {
      const std::size_t bytes = random() % (random() % 20 == 0 ? 100'000 : 600);
      switch (random() % 8) {
        case 0:
          blocks.push_back(written(team_.allocate(bytes), bytes, random));
          break;
        case 1: {
          auto zeroed = local.push_array<unsigned char>(bytes);
          EXPECT_TRUE(std::ranges::all_of(zeroed, [](unsigned char byte) { return byte == 0; }));
          blocks.push_back(written(zeroed.data(), bytes, random));
          break;
        }
        case 2:
          (void)local.make<counted>(objects_);
          break;
        case 3: {
          local_arena::scope scope{local};
          for (int n = 0; n < 3; ++n) (void)written(scope.allocate(bytes), bytes, random);
          (void)local.make<counted>(objects_);
          break;
        }
        case 4: {
          const arena_mark mark = local.mark();
          const std::size_t kept = blocks.size();
          blocks.push_back(written(local.allocate(bytes, 64), bytes, random));
          if (random() % 2 == 0) {
            local.rewind(mark);
            blocks.resize(kept);
          }
          break;
        }
        case 5: {
          void* const newest = local.allocate(bytes);
          team_.deallocate(newest, bytes);
          break;
        }
        default:
          blocks.push_back(written(local.allocate(bytes), bytes, random));
      }
    }
  }

  // By one thread, while the others wait.
  void rewind_sometimes(std::mt19937_64& random) {
    check_blocks();
    team_.check_invariants();
    switch (random() % 8) {
      case 0:
        team_.reset();
        marks_.clear();
        for (std::vector<block>& blocks : blocks_) blocks.clear();
        break;
      case 1:
      case 2: {
        taken taken{team_.mark(), {}};
        for (std::size_t t = 0; t < threads; ++t) taken.blocks[t] = blocks_[t].size();
        marks_.push_back(taken);
        break;
      }
      case 3:
      case 4:
        if (!marks_.empty()) {
          marks_.resize(1 + random() % marks_.size());
          team_.rewind(marks_.back().mark);
          for (std::size_t t = 0; t < threads; ++t) blocks_[t].resize(marks_.back().blocks[t]);
        }
        break;
      case 5:
        (void)team_.trim(random() % 100'000);
        break;
      default:
        break;
    }
    check_blocks();
    team_.check_invariants();
    const shared_arena_stats stats = team_.stats();
    EXPECT_LE(stats.used_bytes + stats.waste_bytes, stats.committed_bytes);
    EXPECT_LE(stats.committed_bytes, stats.reserved_bytes);
    EXPECT_GE(stats.peak_bytes, stats.used_bytes);
  }

  static block written(void* memory, std::size_t bytes, std::mt19937_64& random) {
    const block made{static_cast<unsigned char*>(memory), bytes,
                     static_cast<unsigned char>(random() % 255 + 1)};
    std::memset(memory, made.fill, bytes);
    return made;
  }
  void check_blocks() const {
    std::vector<block> all;
    for (std::vector<block> const& blocks : blocks_) all.insert(all.end(), blocks.begin(), blocks.end());
    std::ranges::sort(all, {}, &block::first);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0) {
        ASSERT_LE(all[i - 1].first + all[i - 1].bytes, all[i].first);
      }
      ASSERT_TRUE(std::all_of(all[i].first, all[i].first + all[i].bytes,
                              [&](unsigned char byte) { return byte == all[i].fill; }));
    }
  }

  struct taken {
    shared_arena_mark mark;
    std::size_t blocks[threads];
  };

  std::uint64_t seed_;
  bool places_;
  std::atomic<long> objects_{0};
  shared_arena team_;
  std::vector<block> blocks_[threads];  // what is live of each thread, oldest first
  std::vector<taken> marks_;
};

void run_for_seeds(bool places) {
  const std::uint64_t first_seed = test::number_from_environment("TIDEMARK_SEED", 1);
  for (std::uint64_t seed = first_seed; seed < first_seed + 5; ++seed) {
    SCOPED_TRACE("repeat with TIDEMARK_SEED=" + std::to_string(seed));
    team_model{seed, places}.run(test::in_this_length(500));
  }
}

TEST(shared_arena_model, agrees_with_threads_that_claim_extents) { run_for_seeds(false); }

TEST(shared_arena_model, agrees_with_threads_that_have_regions_of_their_own) { run_for_seeds(true); }

}  // namespace
}  // namespace tidemark
