// SPDX-License-Identifier: Apache-2.0
// Strategy: programs whose steps differ a little: sizes that jitter, grow, shrink or alternate, and requests
// of some steps only. The counts are deterministic: the steps that a plan serves, the bytes held, and the
// requests of an odd step that leave the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>

#include "played_steps.hpp"

namespace tidemark::test {
namespace {

using planned_learning = played_arena;

/// The reported program: two blocks that live for the whole step, ten consecutive blocks, and one block at
/// the end.
class varying_program {
 public:
  /// @param scale of the n-th request of a step to its base size
  using scale = std::function<double(std::size_t step, std::size_t request)>;

  void run(std::size_t steps, scale const& scale_of) {
    for (std::size_t i = 0; i < steps; ++i) {
      const planned_arena::step here{memory_};
      request_ = live_ = 0;
      const auto bytes = [&](double base) {
        return static_cast<std::size_t>(base * scale_of(i, request_++)) / 8 * 8;
      };
      const block a = allocate_block(bytes(80'000)), b = allocate_block(bytes(160'000));
      for (int k = 0; k < 10; ++k) deallocate_block(allocate_block(bytes(40'000)));
      deallocate_block(allocate_block(bytes(24'000)));
      deallocate_block(b);
      deallocate_block(a);
      if (i == 19) at_twenty_ = memory_.stats();
    }
    memory_.check_invariants();
  }
  [[nodiscard]] planned_arena_stats stats() const { return memory_.stats(); }
  /// Share of planned steps after the twentieth step.
  [[nodiscard]] double planned_share() const {
    const planned_arena_stats all = stats();
    return static_cast<double>(all.planned_steps - at_twenty_.planned_steps) /
           static_cast<double>(all.steps - at_twenty_.steps);
  }
  /// By the largest that was live at once.
  [[nodiscard]] double held_share() const {
    return static_cast<double>(stats().committed_bytes + below_.stats().held_bytes) /
           static_cast<double>(most_live_);
  }

 private:
  struct block {
    void* begin;
    std::size_t bytes;
  };
  block allocate_block(std::size_t bytes) {
    live_ += bytes;
    most_live_ = std::max(most_live_, live_);
    return {memory_.allocate(bytes), bytes};
  }
  void deallocate_block(block const& one) {
    live_ -= one.bytes;
    memory_.deallocate(one.begin, one.bytes);
  }

  pool below_;
  planned_arena memory_{{.fallback = &below_}};
  planned_arena_stats at_twenty_;
  std::size_t request_ = 0, live_ = 0, most_live_ = 0;
};

/// From 0 to 1, the same each time.
class noise {
 public:
  double operator()() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<double>(state_ >> 8) / 16777216.0;
  }

 private:
  std::uint32_t state_ = 1;
};

// P.39
TEST_F(planned_learning, plans_steps_whose_sizes_jitter) {
  for (double amount : {0.001, 0.02, 0.05, 0.1}) {
    varying_program program;
    noise random;
    program.run(2000, [&](std::size_t, std::size_t) { return 1 + amount * random(); });
    EXPECT_GE(program.planned_share(), 0.98) << amount;
    EXPECT_LE(program.held_share(), 1.10) << amount;
    EXPECT_LE(program.stats().plans_made, 8u) << amount;
  }
}

// P.39
TEST_F(planned_learning, plans_steps_that_grow) {
  for (double amount : {0.005, 0.02, 0.04}) {
    varying_program program;
    program.run(2000,
                [&](std::size_t step, std::size_t) { return 1 + amount * static_cast<double>(step) / 100; });
    EXPECT_GE(program.planned_share(), 0.95) << amount;
    EXPECT_LE(program.held_share(), 1.10) << amount;
  }
}

TEST_F(planned_learning, plans_steps_that_shrink) {
  varying_program program;
  program.run(2000, [](std::size_t step, std::size_t) { return 1 - static_cast<double>(step) / 2500; });
  EXPECT_EQ(program.stats().planned_steps, 1999u);
  EXPECT_EQ(program.stats().plans_made, 1u);
  EXPECT_LE(program.held_share(), 1.10);
}

TEST_F(planned_learning, plans_steps_whose_sizes_alternate) {
  for (double other : {0.5, 1.05, 1.5, 3.0}) {
    varying_program program;
    program.run(200, [&](std::size_t step, std::size_t request) {
      return (request == 1 || request == 5) && step % 2 == 1 ? other : 1.0;
    });
    EXPECT_EQ(program.planned_share(), 1.0) << other;
    EXPECT_LE(program.held_share(), 1.10) << other;
    EXPECT_LE(program.stats().plans_made, 4u) << other;
  }
}

TEST_F(planned_learning, plans_requests_of_no_bytes_and_of_some) {
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t from_fallback =
        step(i % 2 == 0 ? "a=0 b=5000 c=0 -a -b -c" : "a=700 b=5000 c=100 -a -b -c");
    if (i >= 4) EXPECT_EQ(from_fallback, 0u) << i;
  }
}

TEST_F(planned_learning, adds_no_headroom_to_sizes_that_repeat) {
  for (int i = 0; i < 10; ++i)
    step("x=100000 y=64000 z=" + std::to_string(6400 + 64 * (i % 2)) + " -x -y -z");
  const step_plan plan = memory_.plans().front();
  EXPECT_EQ(plan.blocks[0].life.size, 100'000u);
  EXPECT_EQ(plan.blocks[1].life.size, 64'000u);
  EXPECT_EQ(plan.blocks[2].life.size, 6464u + 6464 / 64) << "at least 1/64 of the largest";
}

TEST_F(planned_learning, limits_headroom_to_a_sixteenth) {
  for (int i = 0; i < 10; ++i) step("x=" + std::to_string(100'000 << (i / 2)) + " y=10 -x -y");
  EXPECT_EQ(memory_.plans().front().blocks[0].life.size, 1'600'000u + 100'000);
}

/// A step of layers of different sizes, each needed again in the backward pass. @param extra the layer before
/// an additional block, or the missing layer; 0: none
std::string layered_step(std::size_t extra, bool is_more) {
  std::string text;
  const auto bytes = [](std::size_t layer) { return std::to_string(1000 + layer * layer * 700 % 9000); };
  for (std::size_t layer = 1; layer <= 20; ++layer) {
    const std::string n = std::to_string(layer);
    if (layer == extra && is_more) text += "e=33000 ";
    if (layer == extra && !is_more) continue;
    text += "a" + n + "=" + bytes(layer) + " t=" + bytes(layer + 40) + " -t ";
  }
  for (std::size_t layer = 20; layer >= 1; --layer) {
    if (layer == extra && !is_more) continue;
    text += "g=" + bytes(layer) + " -a" + std::to_string(layer) + " -g ";
  }
  return text + (extra != 0 && is_more ? "-e" : "");
}

TEST_F(planned_learning, keeps_the_rest_of_a_step_planned_after_an_extra_request) {
  for (std::size_t layer = 1; layer <= 20; ++layer) {
    planned_arena memory;
    played_steps<planned_arena> steps{memory};
    for (int i = 0; i < 6; ++i) steps.step(layered_step(0, false));
    EXPECT_LE(steps.step(layered_step(layer, true)), 3u) << "layer " << layer;
    EXPECT_EQ(memory.stats().partly_planned_steps, 1u);
  }
}

TEST_F(planned_learning, keeps_the_rest_of_a_step_planned_after_a_missing_layer) {
  std::uint64_t from_fallback = 0;
  for (std::size_t layer = 1; layer <= 20; ++layer) {
    planned_arena memory;
    played_steps<planned_arena> steps{memory};
    for (int i = 0; i < 6; ++i) steps.step(layered_step(0, false));
    from_fallback += steps.step(layered_step(layer, false));
  }
  EXPECT_LE(from_fallback, 60u) << "of 20 steps of 60 requests";
}

// P.39
TEST_F(planned_learning, plans_an_extra_request_in_every_seventh_step) {
  for (std::size_t layer : {1u, 7u, 20u}) {
    planned_arena memory;
    played_steps<planned_arena> steps{memory};
    for (std::size_t i = 0; i < 20; ++i) steps.step(layered_step(i % 7 == 3 ? layer : 0, true));
    std::uint64_t from_fallback = 0;
    for (std::size_t i = 20; i < 90; ++i)
      from_fallback += steps.step(layered_step(i % 7 == 3 ? layer : 0, true));
    EXPECT_EQ(from_fallback, 0u) << "layer " << layer;
  }
}

/// A step of blocks that live for a few requests each. @param more_at position of an additional block;
/// `none`: no such block
struct short_lived_step {
  static constexpr std::size_t none = 1000;
  struct request {
    std::size_t bytes, life;
  };
  std::vector<request> requests;

  explicit short_lived_step(noise& random, std::size_t n) {
    const std::size_t period = 3 + static_cast<std::size_t>(random() * 5);
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < period; ++i)
      sizes.push_back(std::size_t{1000} << static_cast<int>(random() * 7));
    for (std::size_t i = 0; i < n; ++i) {
      const bool is_long = random() < 0.25;
      requests.push_back({sizes[i % period], is_long ? n - i : 1 + static_cast<std::size_t>(random() * 4)});
    }
  }
  /// @return requests that no plan served
  std::uint64_t run(planned_arena& memory, std::size_t more_at, std::size_t more_bytes, int kind = 0) const {
    std::vector<request> all = requests;
    if (more_at != none) all.insert(all.begin() + static_cast<std::ptrdiff_t>(more_at), {more_bytes, 3});
    const std::uint64_t before = memory.stats().fallback_allocations;
    const planned_arena::step here{memory, kind};
    std::vector<void*> blocks(all.size());
    for (std::size_t i = 0; i <= all.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        const bool ends = i == all.size() ? k + all[k].life >= i : k + all[k].life == i;
        if (ends) memory.deallocate(blocks[k], all[k].bytes);
      }
      if (i < all.size()) blocks[i] = memory.allocate(all[i].bytes);
    }
    return memory.stats().fallback_allocations - before;
  }
};

TEST_F(planned_learning, plans_an_extra_request_in_every_second_step) {
  noise random;
  std::size_t left = 0;
  for (int program = 0; program < 200; ++program) {
    const std::size_t n = 8 + static_cast<std::size_t>(random() * 60);
    const short_lived_step step{random, n};
    const auto more_at = static_cast<std::size_t>(random() * static_cast<double>(n));
    const std::size_t more_bytes = std::size_t{1000} << static_cast<int>(random() * 7);
    planned_arena memory;
    for (int i = 0; i < 20; ++i) (void)step.run(memory, i % 2 == 1 ? more_at : step.none, more_bytes);
    std::uint64_t from_fallback = 0;
    for (int i = 20; i < 40; ++i)
      from_fallback += step.run(memory, i % 2 == 1 ? more_at : step.none, more_bytes);
    left += from_fallback != 0 ? 1 : 0;
  }
  EXPECT_LE(left, 8u) << "of 200 programs";
}

TEST_F(planned_learning, keeps_the_plan_when_random_steps_have_an_extra_request) {
  noise random;
  for (int program = 0; program < 20; ++program) {
    const short_lived_step step{random, 60};
    planned_arena memory;
    std::uint64_t planned = 0;
    for (int i = 0; i < 220; ++i) {
      const auto more_at = static_cast<std::size_t>(random() * 60);
      const std::uint64_t from_fallback = step.run(memory, i % 10 == 9 ? more_at : step.none, 5000);
      planned += i >= 20 && from_fallback == 0 ? 1 : 0;
    }
    EXPECT_GE(planned, 170u) << "of 200 steps, 180 of which are alike";
  }
}

TEST_F(planned_learning, pauses_planning_when_no_step_follows_its_plan) {
  for (int kinds : {1, 3, 12, 1000}) {
    noise random;
    planned_arena memory;
    for (int i = 0; i < 600; ++i)
      (void)short_lived_step{random, 60}.run(memory, short_lived_step::none, 0, i % kinds);
    EXPECT_LE(memory.stats().plans_made, 48u) << kinds << " kinds";
    const short_lived_step repeated{random, 60};
    for (int i = 0; i < 80; ++i) (void)repeated.run(memory, repeated.none, 0);
    EXPECT_EQ(repeated.run(memory, repeated.none, 0), 0u) << kinds << " kinds";
  }
}

TEST_F(planned_learning, plans_lifetimes_that_alternate) {
  for (int others : {3, 20, 60}) {
    planned_arena memory;
    for (int i = 0; i < 100; ++i) {
      const planned_arena::step here{memory};
      void* const x = memory.allocate(100'000);
      if (i % 2 == 0) memory.deallocate(x, 100'000);
      void* const y = memory.allocate(100'000);
      for (int k = 0; k < others; ++k) memory.deallocate(memory.allocate(3000), 3000);
      memory.deallocate(y, 100'000);
      if (i % 2 == 1) memory.deallocate(x, 100'000);
    }
    EXPECT_GE(memory.stats().planned_steps, 98u) << others;
    EXPECT_LE(memory.stats().plans_made, 2u) << others;
  }
}

TEST_F(planned_learning, forgets_earlier_steps_of_a_kind_that_gets_a_plan) {
  planned_arena first;
  played_steps<planned_arena> long_steps{first};
  long_steps.step("a=1000 b=2000 c=3000 d=4000 e=5000 -a -b -c -d -e");
  step("a=64 -a");
  memory_.use(first.plans().front());
  step("a=1000 -a");
  EXPECT_EQ(memory_.plans().front().requests, 5u) << "one short step is no reason to drop the plan";
}

TEST_F(planned_learning, takes_enumerators_as_kinds) {
  enum class phase : std::uint8_t { train, evaluate };
  planned_arena memory;
  for (const phase now : {phase::train, phase::evaluate, phase::train, phase::evaluate}) {
    const planned_arena::step here{memory, now};
    const std::size_t bytes = now == phase::train ? 5000 : 200;
    memory.deallocate(memory.allocate(bytes), bytes);
  }
  EXPECT_EQ(memory.stats().planned_steps, 2u);
  EXPECT_EQ(memory.stats().plans, 2u);
}

}  // namespace
}  // namespace tidemark::test
