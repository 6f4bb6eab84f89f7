// SPDX-License-Identifier: Apache-2.0
// Random sequences on one random stack of adaptors after another.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>

#include <tidemark/telemetry/trace_log.hpp>

#include "adaptor_stack.hpp"
#include "choices.hpp"
#include "resource_model.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {

/// The model of one stack after the other.
class stacks_model {
 public:
  stacks_model(choices random, adaptor_stack::reached& seen) : random_{std::move(random)}, seen_{seen} {}
  stacks_model(stacks_model const&) = delete;
  stacks_model& operator=(stacks_model const&) = delete;
  ~stacks_model() { end_stack(); }

  void step() {
    if (left_ == 0) {
      end_stack();
      stack_.emplace(random_.another(), log_, seen_);
      model_.emplace(*stack_, random_.another());
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

  choices random_;
  adaptor_stack::reached& seen_;
  violation_recorder violations_;
  trace_log log_{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  std::optional<adaptor_stack> stack_;
  std::optional<resource_model<adaptor_stack>> model_;
  std::uint64_t left_ = 0;
};

}  // namespace tidemark::test
