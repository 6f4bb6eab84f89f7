// SPDX-License-Identifier: Apache-2.0
// Strategy: random sequences on many stacks of adaptors (adaptor_stack.hpp), beside the shadow of
// resource_model.hpp. What the layers count must agree all the time, and at its end each stack has given its
// upstream back what it got, block by block.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>

#include <tidemark/telemetry/trace_log.hpp>

#include "adaptor_stack.hpp"
#include "resource_model.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// The model of one stack after the other.
class stacks_model {
 public:
  stacks_model(std::uint64_t seed, adaptor_stack::reached& seen) : random_{seed}, seen_{seen} {}
  stacks_model(stacks_model const&) = delete;
  stacks_model& operator=(stacks_model const&) = delete;
  ~stacks_model() { end_stack(); }

  void step() {
    if (left_ == 0) {
      end_stack();
      stack_.emplace(random_(), log_, seen_);
      model_.emplace(*stack_, random_());
      left_ = 1 + random_() % 400;
    }
    --left_;
    model_->step();
  }
  void check_contents() const { model_->check_contents(); }

 private:
  void end_stack() {
    model_.reset();
    stack_.reset();
    EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  }

  std::mt19937_64 random_;
  adaptor_stack::reached& seen_;
  violation_recorder violations_;
  trace_log log_{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  std::optional<adaptor_stack> stack_;
  std::optional<resource_model<adaptor_stack>> model_;
  std::uint64_t left_ = 0;
};

TEST(resource_model, agrees_with_stacks_of_adaptors) {
  adaptor_stack::reached seen;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        stacks_model model{seed, seen};
        run(model);
      },
      8'000);
  if (::testing::Test::HasFailure()) return;
  EXPECT_GT(seen.two_of_a_kind, seen.stacks / 4);
  EXPECT_GT(seen.refused_below, seen.stacks / 4);
  EXPECT_GT(seen.quarantined, seen.stacks / 4);
}

}  // namespace
}  // namespace tidemark::test
