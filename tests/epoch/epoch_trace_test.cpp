// SPDX-License-Identifier: Apache-2.0
// Strategy: the tensors of real training loops are allocated again with each recorded step as an epoch, which
// keeps the blocks that outlive the step. In one run nothing else is freed, so the epoch must free it. In
// another run everything is freed as in the program. The upstream's counts are compared with the trace.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "recorded_trace.hpp"

namespace tidemark::test {
namespace {

struct training_loop {
  char const* name;
  std::size_t steps, promoted_first, promoted_later;  // later: in each step but the first
};
constexpr training_loop gpt{"torch_gpt", 5, 163, 4}, mlp{"torch_mlp", 51, 8, 4};

enum class source { records, slabs };  // for blocks of up to 1 KiB
enum class frees { all, late_ones };   // late: of blocks that outlived their step, or are of none

/// A step of the trace, and the observations of its replay.
struct played_step {
  std::size_t allocated = 0, outliving = 0;  // blocks
  std::size_t live_bytes = 0;                // in the trace, when the step ends
  std::size_t upstream_bytes = 0;            // in use then
  epoch_summary end;
};

template <training_loop const& Loop, source From, frees Which>
struct replay {
  static constexpr training_loop const& loop = Loop;
  static constexpr bool in_slabs = From == source::slabs;
  static constexpr bool frees_all = Which == frees::all;
};

template <class Replay>
class epoch_trace : public testing::Test {
 protected:
  static constexpr training_loop const& loop = Replay::loop;

  void SetUp() override {
    const std::string path = std::string{TIDEMARK_TRACES "/"} + loop.name;
    trace_ = tools::read_trace(path + ".csv");
    freed_by_.assign(trace_.blocks, std::numeric_limits<std::size_t>::max());
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      if (!trace_.events[i].allocates) freed_by_[trace_.events[i].block] = i;
    }
    blocks_.resize(trace_.blocks);
    play(tools::steps_in_order(trace_));
  }
  void TearDown() override {
    for (tools::trace_event const& event : trace_.left) deallocate(event);
    EXPECT_EQ(upstream_.stats().used_blocks, 0u);
  }

  // Exactly the live bytes; but slabs are cut from chunks of 64 KiB, and parts of three chunks are free.
  static void expect_in_use(std::size_t upstream_bytes, std::size_t live_bytes) {
    EXPECT_GE(upstream_bytes, live_bytes);
    EXPECT_LE(upstream_bytes, live_bytes + (Replay::in_slabs ? 3 * 64 * KiB : 0));
  }

  void play(std::vector<tools::trace_step> const& steps) {
    std::size_t next = 0;
    for (tools::trace_step const& step : steps) {
      while (next < step.first_event) play_event(next++);
      epoch e{memory_, "step"};
      played_step seen;
      std::vector<void*> outliving;
      for (; next <= step.last_event; ++next) {
        tools::trace_event const& event = trace_.events[next];
        const bool dies_within = freed_by_[event.block] <= step.last_event;
        seen.allocated += event.allocates ? 1 : 0;
        live_bytes_ += event.allocates ? event.bytes : 0 - event.bytes;
        if (event.allocates) {
          allocate(event);
          if (!dies_within) outliving.push_back(blocks_[event.block].address);
          blocks_[event.block].is_of_epoch = dies_within;
        } else if (Replay::frees_all || !blocks_[event.block].is_of_epoch) {
          deallocate(event);
        }
      }
      seen.outliving = e.keep(outliving);
      EXPECT_EQ(seen.outliving, outliving.size());
      seen.end = e.end();
      seen.live_bytes = live_bytes_;
      seen.upstream_bytes = upstream_.stats().used_bytes;
      steps_.push_back(seen);
      memory_.check_invariants();
    }
    while (next < trace_.events.size()) play_event(next++);
  }

  void play_event(std::size_t i) {
    tools::trace_event const& event = trace_.events[i];
    live_bytes_ += event.allocates ? event.bytes : 0 - event.bytes;
    event.allocates ? allocate(event) : deallocate(event);
  }
  // A block is marked with its number at both ends, so that a second owner of its bytes is found.
  void allocate(tools::trace_event const& event) {
    block& made = blocks_[event.block];
    made = {static_cast<std::byte*>(memory_.allocate(event.bytes, tools::replay_alignment)), false};
    if (event.bytes < sizeof event.block) return;
    std::memcpy(made.address + event.bytes - sizeof event.block, &event.block, sizeof event.block);
    std::memcpy(made.address, &event.block, sizeof event.block);
  }
  void deallocate(tools::trace_event const& event) {
    block const& freed = blocks_[event.block];
    std::size_t first = event.block, last = event.block;
    if (event.bytes >= sizeof first) {
      std::memcpy(&first, freed.address, sizeof first);
      if (event.bytes >= 2 * sizeof last) {
        std::memcpy(&last, freed.address + event.bytes - sizeof last, sizeof last);
      }
    }
    contents_lost_ += first != event.block || last != event.block ? 1 : 0;
    memory_.deallocate(freed.address, event.bytes, tools::replay_alignment);
  }

  struct block {
    std::byte* address = nullptr;
    bool is_of_epoch = false;  // dies with its step
  };

  tools::recorded_trace trace_;
  std::vector<std::size_t> freed_by_;  // by block: the event that frees it
  std::vector<block> blocks_;
  std::size_t live_bytes_ = 0;  // in the trace
  std::size_t contents_lost_ = 0;
  std::vector<played_step> steps_;

  statistics_resource upstream_{std::pmr::new_delete_resource()};
  // Each block is returned at once, so that the upstream's counts can be checked.
  epoch_resource memory_{{.host_memory = Replay::in_slabs}, &upstream_};
};

using replays =
    testing::Types<replay<gpt, source::records, frees::all>, replay<gpt, source::records, frees::late_ones>,
                   replay<mlp, source::records, frees::all>, replay<mlp, source::records, frees::late_ones>,
                   replay<gpt, source::slabs, frees::all>, replay<gpt, source::slabs, frees::late_ones>,
                   replay<mlp, source::slabs, frees::all>, replay<mlp, source::slabs, frees::late_ones>>;
TYPED_TEST_SUITE(epoch_trace, replays, );

TYPED_TEST(epoch_trace, step_promotes_surviving_blocks_and_reclaims_the_rest) {
  ASSERT_EQ(this->steps_.size(), TypeParam::loop.steps);
  for (std::size_t i = 0; i < this->steps_.size(); ++i) {
    played_step const& step = this->steps_[i];
    EXPECT_EQ(step.end.promoted, i == 0 ? TypeParam::loop.promoted_first : TypeParam::loop.promoted_later)
        << "step " << i;
    EXPECT_EQ(step.end.promoted, step.outliving) << "step " << i;
    EXPECT_EQ(step.end.reclaimed, TypeParam::frees_all ? 0 : step.allocated - step.outliving) << "step " << i;
  }
}

TYPED_TEST(epoch_trace, live_bytes_match_the_trace_at_the_end_of_every_step) {
  for (std::size_t i = 0; i < this->steps_.size(); ++i) {
    this->expect_in_use(this->steps_[i].upstream_bytes, this->steps_[i].live_bytes);
    EXPECT_GT(this->steps_[i].live_bytes, 0u) << "step " << i;
  }
}

TYPED_TEST(epoch_trace, late_frees_of_promoted_blocks_are_honoured) {
  std::size_t promoted = 0;
  for (played_step const& step : this->steps_) promoted += step.end.promoted;
  const epoch_stats stats = this->memory_.stats();
  EXPECT_EQ(stats.promoted, promoted);
  EXPECT_EQ(stats.let_go, promoted);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(stats.late, 0u);
  // Only the blocks that the tear-down does not free are left.
  EXPECT_EQ(this->upstream_.stats().used_bytes, this->live_bytes_);
  EXPECT_EQ(this->upstream_.stats().used_blocks, this->trace_.left.size());
  EXPECT_EQ(this->contents_lost_, 0u);
}

TYPED_TEST(epoch_trace, peak_matches_the_trace_if_all_blocks_are_freed) {
  const std::size_t peak_bytes = this->upstream_.stats().peak_bytes;
  if (TypeParam::frees_all) {
    this->expect_in_use(peak_bytes, this->trace_.peak_live_bytes);
  } else {
    EXPECT_GT(peak_bytes, this->trace_.peak_live_bytes) << "nothing was left to the epochs";
  }
}

}  // namespace
}  // namespace tidemark::test
