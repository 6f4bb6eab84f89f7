// SPDX-License-Identifier: Apache-2.0
// A shared arena and its threads. Each thread knows the contents of its blocks. Between their calls one
// thread marks, opens scopes, rewinds, resets or trims. No two blocks of any threads overlap, live blocks
// keep their contents, and the invariants hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/team/shared_arena.hpp>

#include "choices.hpp"
#include "program_log.hpp"

namespace tidemark::test {

/// Threads in any order, or all at once: `operate` is called on the thread that it is for.
class team_model {
 public:
  static constexpr std::size_t threads = 3;

  /// @param places true if each thread has its own region
  explicit team_model(bool places)
      : places_{places},
        team_{{.reserve = 1 * MiB, .commit_step = 16 * KiB, .retain = 4 * MiB, .name = "model"},
              {.threads = places ? threads : 0, .min_extent_bytes = 4 * KiB, .max_extent_bytes = 32 * KiB}} {}

  /// One call of thread `t`.
  void operate(std::size_t t, choices& random) {
    std::vector<block>& blocks = blocks_[t];
    local_arena& local = places_ ? team_.local(t) : team_.local();
    const std::size_t bytes = random() % (random() % 20 == 0 ? 100'000 : 600);
    switch (random() % 8) {
      case 0:
        log_call(t, "team.allocate(", bytes, ");");
        blocks.push_back(written(team_.allocate(bytes), bytes, random));
        break;
      case 1: {
        log_call(t, "local.push_array<unsigned char>(", bytes, ");");
        auto zeroed = local.push_array<unsigned char>(bytes);
        EXPECT_TRUE(std::ranges::all_of(zeroed, [](unsigned char byte) { return byte == 0; }));
        blocks.push_back(written(zeroed.data(), bytes, random));
        break;
      }
      case 2:
        log_call(t, "local.make<counted>(objects);");
        (void)local.make<counted>(objects_);
        break;
      case 3: {
        log_call(t, "{ local_arena::scope scope{local}; for (int n = 0; n < 3; ++n) (void)scope.allocate(",
                 bytes, "); (void)local.make<counted>(objects); }");
        local_arena::scope scope{local};
        for (int n = 0; n < 3; ++n) (void)written(scope.allocate(bytes), bytes, random);
        (void)local.make<counted>(objects_);
        break;
      }
      case 4: {
        const arena_mark mark = local.mark();
        const std::size_t kept = blocks.size();
        log_call(t, "auto mark = local.mark(); (void)local.allocate(", bytes, ", 64);");
        blocks.push_back(written(local.allocate(bytes, 64), bytes, random));
        if (random() % 2 == 0) {
          log_call(t, "local.rewind(mark);");
          local.rewind(mark);
          blocks.resize(kept);
        }
        break;
      }
      case 5: {
        log_call(t, "team.deallocate(local.allocate(", bytes, "), ", bytes, ");");
        void* const newest = local.allocate(bytes);
        team_.deallocate(newest, bytes);
        break;
      }
      default:
        log_call(t, "local.allocate(", bytes, ");");
        blocks.push_back(written(local.allocate(bytes), bytes, random));
    }
  }

  /// The thread that calls it gives up its place, unless threads have their own.
  void leave() {
    if (!places_) team_.leave();
  }

  /// Actions of one thread while the others wait.
  void rewind_sometimes(choices& random) {
    check_blocks();
    team_.check_invariants();
    switch (random() % 10) {
      case 0:
        reset();
        break;
      case 1:
      case 2:
        log_line("marks.push_back(team.mark());");
        marks_.push_back({team_.mark(), counts()});
        break;
      case 3:
      case 4:
        rewind(random());
        break;
      case 5: {
        const std::size_t keep_bytes = random() % 100'000;
        log_line("team.trim(", keep_bytes, ");");
        (void)team_.trim(keep_bytes);
        break;
      }
      case 6:
        if (scopes_.size() == 4) break;
        log_line("scopes.push_back(std::make_unique<shared_arena::scope>(team));");
        scopes_.push_back({std::make_unique<shared_arena::scope>(team_), counts(), marks_.size()});
        break;
      case 7:
        if (!scopes_.empty()) end_scope();
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

  /// At the end, while the others wait or have ended.
  void end() {
    while (!scopes_.empty()) end_scope();
    reset();
    EXPECT_EQ(objects_.load(), 0);
    EXPECT_EQ(team_.stats().used_bytes, 0u);
  }

 private:
  struct block {
    unsigned char* first;
    std::size_t bytes;
    unsigned char fill;
  };
  /// Counts live objects, and reports an object that is destroyed twice.
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
  using block_counts = std::array<std::size_t, threads>;
  struct known_mark {
    shared_arena_mark mark;
    block_counts blocks;
  };
  struct open_scope {
    std::unique_ptr<shared_arena::scope> scope;
    block_counts blocks;
    std::size_t marks;
  };

  template <class... Parts>
  static void log_call(std::size_t t, Parts const&... parts) {
    log_line("/* thread ", t, " */ ", parts...);
  }

  [[nodiscard]] block_counts counts() const {
    block_counts all{};
    for (std::size_t t = 0; t < threads; ++t) all[t] = blocks_[t].size();
    return all;
  }
  void remove_since(block_counts const& before) {
    for (std::size_t t = 0; t < threads; ++t) blocks_[t].resize(before[t]);
  }

  void reset() {
    log_line("team.reset();");
    if (!scopes_.empty()) {
      EXPECT_THROW(team_.reset(), std::logic_error);
      return;
    }
    team_.reset();
    marks_.clear();
    remove_since({});
  }
  // To a mark that no open scope is above.
  void rewind(std::uint64_t which) {
    const std::size_t first = scopes_.empty() ? 0 : scopes_.back().marks;
    if (marks_.size() <= first) return;
    marks_.resize(first + 1 + which % (marks_.size() - first));
    log_line("marks.resize(", marks_.size(), "); team.rewind(marks.back());");
    team_.rewind(marks_.back().mark);
    remove_since(marks_.back().blocks);
  }
  void end_scope() {
    log_line("scopes.pop_back();");
    remove_since(scopes_.back().blocks);
    marks_.resize(scopes_.back().marks);
    scopes_.pop_back();
  }

  static block written(void* memory, std::size_t bytes, choices& random) {
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

  bool places_;
  std::atomic<long> objects_{0};
  shared_arena team_;
  std::array<std::vector<block>, threads> blocks_;  // the live blocks of each thread, oldest first
  std::vector<known_mark> marks_;
  std::vector<open_scope> scopes_;
};

}  // namespace tidemark::test
