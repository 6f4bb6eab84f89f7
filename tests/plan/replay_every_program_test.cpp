// SPDX-License-Identifier: Apache-2.0
// Strategy: every small program on a planned arena. A program is a sequence of requests of one or two units,
// deallocations of any live block, and step boundaries. The first step is recorded, and its plan or a later
// plan serves the others. In every program a returned block shares no byte with a live block, and every live
// block can be deallocated.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/core/violation.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

namespace tidemark::test {
namespace {

constexpr std::size_t unit = 256;  // that blocks of a plan are aligned to

/// One run of a program.
class program {
 public:
  program() { step_.emplace(arena_); }
  program(program const&) = delete;
  program& operator=(program const&) = delete;
  ~program() {
    step_.reset();
    for (live_block const& each : live_) arena_.deallocate(each.begin, each.bytes);
  }

  /// Requests of one and two units, the end of a step, and behind these the live blocks.
  [[nodiscard]] std::size_t choices() const { return 3 + live_.size(); }

  /// @return false if a block was handed out that shares bytes with a live one
  [[nodiscard]] bool step(std::size_t choice) {
    if (choice < 2) return request((choice + 1) * unit);
    if (choice == 2) {
      step_.reset();
      step_.emplace(arena_);
    } else {
      const auto ending = live_.begin() + static_cast<std::ptrdiff_t>(choice - 3);
      arena_.deallocate(ending->begin, ending->bytes);
      live_.erase(ending);
    }
    return true;
  }

  [[nodiscard]] std::size_t planned() const {
    return static_cast<std::size_t>(arena_.stats().planned_allocations);
  }

 private:
  struct live_block {
    char* begin;
    std::size_t bytes;
  };

  bool request(std::size_t bytes) {
    const live_block made{static_cast<char*>(arena_.allocate(bytes)), bytes};
    for (live_block const& other : live_) {
      if (made.begin < other.begin + other.bytes && other.begin < made.begin + made.bytes) return false;
    }
    live_.push_back(made);
    return true;
  }

  planned_arena arena_{{.reserve = 64 * KiB, .fallback = std::pmr::new_delete_resource()}};
  std::optional<planned_arena::step> step_;
  std::vector<live_block> live_;
};

struct outcome {
  std::size_t programs = 0, planned = 0;
  std::string failed;  // the choices of the first program that fails
};

/// All programs of `length` choices behind a first step of `first`, each run from its beginning.
outcome run_every_program(std::vector<std::size_t> const& first, std::size_t length) {
  outcome all;
  std::vector<std::size_t> choices(length, 0);
  for (;;) {
    program running;
    for (std::size_t choice : first) (void)running.step(choice);
    std::vector<std::size_t> there_were(length, 1);
    for (std::size_t i = 0; i < length; ++i) {
      there_were[i] = running.choices();
      if (running.step(choices[i])) continue;
      for (std::size_t k = 0; k <= i; ++k) all.failed += std::to_string(choices[k]) + ' ';
      return all;
    }
    ++all.programs;
    all.planned += running.planned();
    std::size_t last = length;
    while (last > 0 && choices[last - 1] + 1 == there_were[last - 1]) choices[--last] = 0;
    if (last == 0) return all;
    ++choices[last - 1];
  }
}

TEST(replay_every_program, returns_no_byte_of_a_live_block) {
  std::size_t programs = 0, planned = 0;
  // First steps: three blocks that die in the step in each order, or outlive it.
  for (std::vector<std::size_t> const& first : {std::vector<std::size_t>{0, 3, 1, 3, 0, 3, 2},
                                                {0, 1, 3, 3, 0, 3, 2},
                                                {0, 1, 4, 0, 4, 3, 2},
                                                {0, 0, 3, 1, 2},
                                                {0, 1, 4, 2},
                                                {1, 0, 2}}) {
    const outcome all = run_every_program(first, 6);
    EXPECT_EQ(all.failed, "") << "behind a first step of " << testing::PrintToString(first);
    programs += all.programs;
    planned += all.planned;
  }
  EXPECT_GT(planned, programs) << "plans served hardly anything";
  testing::Test::RecordProperty("programs", std::to_string(programs));
}

}  // namespace
}  // namespace tidemark::test
