// SPDX-License-Identifier: Apache-2.0
// Strategy: recorded trainings played step by step on a planned arena, with each block's ends written and
// read again, and after each event what it holds compared with what the program has live.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "marked_blocks.hpp"
#include "recorded_trace.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

using tools::recorded_trace;
using tools::trace_event;
using tools::trace_step;

/// What a step did.
struct step_outcome {
  std::uint64_t from_fallback = 0;
  std::size_t peak_bytes = 0;  ///< most behind the plan and in the fallback's blocks
  std::size_t max_live_bytes =
      0;  ///< most live at once of blocks of this step and the one before, each rounded up
  std::size_t outliving_bytes = 0;  ///< of its blocks that are live at its end, each rounded up
  planned_arena_stats stats;        ///< at its end
};

class training {
 public:
  explicit training(std::string const& name)
      : trace_{tools::read_trace(std::string{TIDEMARK_TRACES "/"} + name + ".csv")},
        steps_{tools::read_steps(std::string{TIDEMARK_TRACES "/"} + name + "_steps.csv", trace_)},
        blocks_{memory_, trace_.blocks},
        step_of_(trace_.blocks) {}

  [[nodiscard]] recorded_trace const& trace() const { return trace_; }

  std::vector<step_outcome> run() {
    std::vector<step_outcome> outcomes;
    std::size_t next = 0;
    for (trace_step const& step : steps_) {
      while (next < step.first_event) play(trace_.events[next++]);
      outcomes.push_back(play_step(next, step.last_event));
    }
    while (next < trace_.events.size()) play(trace_.events[next++]);
    for (trace_event const& event : trace_.left) play(event);
    EXPECT_EQ(memory_.stats().used_blocks, 0u);
    EXPECT_EQ(fallback_.outstanding, 0u);
    return outcomes;
  }

 private:
  step_outcome play_step(std::size_t& next, std::size_t last) {
    step_outcome outcome;
    const std::uint64_t before = memory_.stats().fallback_allocations;
    // Of blocks from before, those of the last step only: others are its program's for good.
    std::size_t live = outliving_before_;
    ++step_;
    {
      const planned_arena::step open{memory_};
      for (; next <= last; ++next) {
        trace_event const& event = trace_.events[next];
        play(event);
        const bool is_of_step = step_of_[event.block] == step_;
        if (is_of_step || step_of_[event.block] + 1 == step_) {
          live += event.allocates ? rounded(event) : -rounded(event);
          if (is_of_step) outcome.outliving_bytes += event.allocates ? rounded(event) : -rounded(event);
        }
        outcome.max_live_bytes = std::max(outcome.max_live_bytes, live);
        outcome.peak_bytes =
            std::max(outcome.peak_bytes, memory_.stats().committed_bytes + fallback_.outstanding);
      }
    }
    outliving_before_ = outcome.outliving_bytes;
    memory_.check_invariants();
    outcome.stats = memory_.stats();
    outcome.from_fallback = outcome.stats.fallback_allocations - before;
    return outcome;
  }

  static std::size_t rounded(trace_event const& event) {
    return detail::align_up(std::max<std::size_t>(event.bytes, 1), 256);
  }

  void play(trace_event const& event) {
    if (event.allocates) step_of_[event.block] = step_;
    blocks_.play(event);
  }

  recorded_trace trace_;
  std::vector<trace_step> steps_;
  recording_resource fallback_;
  planned_arena memory_{&fallback_};
  marked_blocks blocks_;
  std::vector<std::size_t> step_of_;  // by block; 0: none
  std::size_t step_ = 0, outliving_before_ = 0;
};

TEST(planned_traces, a_small_network_needs_what_is_live_at_once_from_the_third_step_on) {
  const std::vector<step_outcome> steps = training{"torch_mlp"}.run();
  ASSERT_EQ(steps.size(), 51u);
  for (std::size_t i = 2; i < steps.size(); ++i) {
    step_outcome const& step = steps[i];
    EXPECT_EQ(step.from_fallback, 0u) << "step " << i;
    EXPECT_EQ(step.stats.height_bytes, step.stats.lower_bound_bytes) << "step " << i;
    EXPECT_LE(step.stats.height_bytes, step.max_live_bytes + step.outliving_bytes) << "step " << i;
  }
  EXPECT_EQ(steps.back().stats.plans_made, steps[2].stats.plans_made) << "once and for all";
}

TEST(planned_traces,
     a_transformer_of_changing_lengths_needs_little_more_than_its_peak_from_the_third_step_on) {
  training transformer{"torch_gpt"};
  const std::vector<step_outcome> steps = transformer.run();
  ASSERT_EQ(steps.size(), 5u);
  for (std::size_t i = 2; i < steps.size(); ++i) {
    EXPECT_LE(static_cast<double>(steps[i].peak_bytes),
              1.25 * static_cast<double>(transformer.trace().peak_live_bytes))
        << "step " << i;
  }
  EXPECT_EQ(steps.back().from_fallback, 0u) << "the last is as long as one before";
}

}  // namespace
}  // namespace tidemark::test
