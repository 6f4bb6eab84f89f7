// SPDX-License-Identifier: Apache-2.0
// Strategy: plans of a planned arena, written and read again; one plan or file for each rule that can be
// broken; and many files with random changes.
#include <tidemark/plan/replay/step_plan.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>

#include "caught.hpp"
#include "plan_file.hpp"
#include "played_steps.hpp"
#include "temporary_folder.hpp"
#include "trace_files.hpp"

namespace tidemark::test {
namespace {

/// A plan of three requests: the first outlives the step, and may do so twice at once.
step_plan small_plan() {
  return {
      .blocks = {{.request = 0, .life = {.lower = 0, .upper = 4, .size = 100, .alignment = 256, .offset = 0}},
                 {.request = 0,
                  .life = {.lower = 0, .upper = 4, .size = 100, .alignment = 256, .offset = 256}},
                 {.request = 1, .life = {.lower = 1, .upper = 2, .size = 0, .alignment = 256, .offset = 512}},
                 {.request = 2,
                  .life = {.lower = 2, .upper = 3, .size = 300, .alignment = 512, .offset = 512}}},
      .requests = 3,
      .alignment = 256,
      .height = 1024,
      .lower_bound = 1024};
}

step_plan plan_of(std::string const& step) {
  planned_arena memory;
  played_steps<planned_arena>{memory}.step(step);
  return memory.plans().front();
}

std::string refusal(step_plan const& plan) {
  return message_or<std::invalid_argument>("", [&] { plan.require_valid(); });
}

TEST(step_plan, is_valid_when_made_by_an_arena) {
  EXPECT_EQ(refusal(small_plan()), "");
  EXPECT_EQ(refusal(plan_of("a=1000 b=0 c=500@4096 -a d=2000 -b -d")), "");
  EXPECT_EQ(refusal(step_plan{}), "");
}

TEST(step_plan, is_rejected_with_request_and_formula_if_it_breaks_a_rule) {
  const auto changed = [](auto change) {
    step_plan plan = small_plan();
    change(plan);
    return refusal(plan);
  };
  EXPECT_EQ(changed([](step_plan& p) { p.alignment = 0; }), "step_plan: alignment is not a power of two");
  EXPECT_EQ(changed([](step_plan& p) { p.alignment = 384; }), "step_plan: alignment is not a power of two");
  EXPECT_EQ(changed([](step_plan& p) { p.lower_bound = 1025; }), "step_plan: not lower_bound <= height");
  EXPECT_EQ(changed([](step_plan& p) { p.requests = 4; }),
            "step_plan: request 0: more than one block for a request that ends within the step");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks.pop_back(); }),
            "step_plan: the plan's number of requests differs from its blocks");
  EXPECT_EQ(changed([](step_plan& p) { std::swap(p.blocks[2], p.blocks[3]); }),
            "step_plan: request 2: not numbered one after the other");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks.insert(p.blocks.begin() + 2, p.blocks[2]); }),
            "step_plan: request 1: more than one block for a request that ends within the step");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.upper = 2; }),
            "step_plan: request 2: not lower < upper");
  EXPECT_EQ(
      changed([](step_plan& p) { p.blocks[3].life.lower = 1; }),
      "step_plan: request 2: not live in [request, upper) with upper <= requests, or in [0, requests + 1)");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.alignment = 96; }),
            "step_plan: request 2: not aligned to a power of two");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.offset.reset(); }),
            "step_plan: request 2: not placed");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.offset = 768; }),
            "step_plan: request 2: not at a multiple of the alignment");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[2].life.offset = 513; }),
            "step_plan: request 1: not at a multiple of the alignment");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.size = 513; }),
            "step_plan: request 2: not offset + size <= height");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[3].life.size = SIZE_MAX; }),
            "step_plan: request 2: not offset + size <= height");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[2].life.offset = 1024; }),
            "step_plan: request 1: not offset + size <= height")
      << "a block of no bytes has an address";
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[2].life.upper = 3; }),
            "step_plan: request 2: overlaps a block that is live at the same time");
  EXPECT_EQ(changed([](step_plan& p) { p.blocks[2].life.offset = 256; }),
            "step_plan: request 1: overlaps a block that is live at the same time");
}

TEST(step_plan, is_rejected_if_places_of_one_request_differ) {
  const std::string reason = "step_plan: request 0: its places differ in size or alignment";
  for (std::size_t i : {0u, 1u}) {
    for (std::size_t size : {0u, 16u, 99u, 101u, 200u}) {
      step_plan plan = small_plan();
      plan.blocks[i].life.size = size;
      EXPECT_EQ(refusal(plan), reason) << size << " bytes at place " << i;
    }
    for (std::size_t alignment : {1u, 16u, 128u}) {
      step_plan plan = small_plan();
      plan.blocks[i].life.alignment = alignment;
      EXPECT_EQ(refusal(plan), reason) << alignment << " at place " << i;
    }
  }
}

class step_plan_file : public testing::Test {
 protected:
  [[nodiscard]] std::string path(char const* name = "step.csv") const { return folder_ / name; }
  void write(std::string const& text) const { std::ofstream{path(), std::ios::binary} << text; }
  [[nodiscard]] std::string text() const { return text_of(path()); }
  /// Why it is not read, without the file's name; a colon if it is.
  static std::string reason(std::string const& path) {
    const std::string sentence =
        message_or<std::runtime_error>(path + ":", [&] { (void)load_step_plan(path); });
    EXPECT_TRUE(sentence.starts_with(path + ":")) << sentence;
    return sentence.substr(path.size());
  }
  /// The same for a text, without the advice that ends each message.
  std::string reason_of(std::string const& text) const {
    write(text);
    const std::string found = reason(path()),
                      advice = "; only files of save_plan load, also after tidemark-plan --replan";
    EXPECT_TRUE(found.ends_with(advice)) << found;
    return found.substr(0, found.size() - advice.size());
  }

  static constexpr char const* header = "id,lower,upper,size,alignment,offset\n";
  temporary_folder folder_;
};

// P.23
TEST_F(step_plan_file, holds_the_plan) {
  for (step_plan const& plan :
       {small_plan(), plan_of("a=1000 b=0 c=500@4096 -a d=2000 -b -d"), step_plan{}}) {
    save_plan(plan, path());
    step_plan loaded = load_step_plan(path());
    EXPECT_LE(loaded.lower_bound, plan.lower_bound) << "the planner may know of a higher one";
    loaded.lower_bound = plan.lower_bound;
    EXPECT_EQ(loaded, plan);
  }
}

TEST_F(step_plan_file, has_a_row_for_each_block) {
  save_plan(small_plan(), path());
  EXPECT_EQ(text(), std::string{header} +
                        "0,0,4,100,256,0\n"
                        "0,0,4,100,256,256\n"
                        "1,1,2,0,256,512\n"
                        "2,2,3,300,512,512\n");
}

TEST_F(step_plan_file, is_read_as_lifetimes) {
  const step_plan plan = plan_of("a=1000 b=0 c=500@4096 -a d=2000 -b -d");
  save_plan(plan, path());
  const std::vector<lifetime> lives = tools::read_lifetimes(path()).blocks;
  ASSERT_EQ(lives.size(), plan.blocks.size());
  for (std::size_t i = 0; i < lives.size(); ++i) EXPECT_EQ(lives[i], plan.blocks[i].life);
}

TEST_F(step_plan_file, is_rejected_with_line_and_reason_if_malformed) {
  const std::string start = header, first = start + "0,0,1,100,256,0\n",
                    number = "the row is not six whole numbers below 2^64";
  const std::pair<std::string, std::string> bad[] = {
      {"", ":1: the file is empty; it should begin with id,lower,upper,size,alignment,offset"},
      {"\n", ":1: the header is not id,lower,upper,size,alignment,offset"},
      {"id,lower,upper,size\n", ":1: the header is not id,lower,upper,size,alignment,offset"},
      {start + "\n", ":2: " + number},
      {first + "1,1,2,100,256\n", ":3: " + number},
      {first + "1,1,2,100,256,0,0\n", ":3: " + number},
      {first + "1,1,2,x,256,0\n", ":3: " + number},
      {first + "1,1,2,-1,256,0\n", ":3: " + number},
      {first + "1,1,2,1.5,256,0\n", ":3: " + number},
      {first + "1,1,2, 1,256,0\n", ":3: " + number},
      {first + "1,1,2,,256,0\n", ":3: " + number},
      {first + "1,1,2,100,256,0\r\n", ":3: " + number},
      {first + "1,1,2,18446744073709551616,256,0\n", ":3: " + number},
      {first + "1,1,2,18446744073709551615,256,0\n", ":3: size is 18446744073709551615, above 2^62"},
      {first + "1,1,2,100,9223372036854775808,0\n", ":3: alignment is 9223372036854775808, above 2^62"},
      {first + "1,1,2,100,256,9223372036854775808\n", ":3: offset is 9223372036854775808, above 2^62"},
      {first + "1,1,4611686018427387905,100,256,0\n", ":3: upper is 4611686018427387905, above 2^62"},
      {first + "9,1,2,100,256,0\n", ":3: id is 9; ids are requests, and the next request is 1"},
      {first + "2,2,3,100,256,0\n", ":3: id is 2; ids are requests, and the next request is 1"},
      {start + "18446744073709551615,1,2,100,256,0\n",
       ":2: id is 18446744073709551615; ids are requests, and the next request is 0"},
      {first + "1,1,2,100,0,0\n", ":3: the alignment is not a power of two"},
      {first + "1,1,2,100,96,0\n", ":3: the alignment is not a power of two"},
      {first + "1,1,2,100,256,100\n", ":3: request 1: not at a multiple of the alignment"},
      {first + first.substr(start.size()),
       ":3: request 0: more than one block for a request that ends within the step"},
      {first + "1,1,2,100,256,0\n0,0,1,100,256,0\n",
       ":4: id is 0; ids are requests, and the next request is 2"},
      {start + "0,0,2,100,256,0\n1,1,2,100,256,0\n",
       ":3: request 1: overlaps a block that is live at the same time"},
      {start + "0,0,2,100,256,0\n0,0,2,100,256,0\n",
       ":3: request 0: overlaps a block that is live at the same time"},
      {start + "0,0,2,257,256,0\n0,0,2,257,256,256\n",
       ":3: request 0: overlaps a block that is live at the same time"},
      {start + "0,0,0,100,256,0\n", ":2: request 0: not lower < upper"},
      {first + "1,2,1,100,256,0\n", ":3: request 1: not lower < upper"},
  };
  for (auto const& [text, why] : bad) EXPECT_EQ(reason_of(text), why) << text;
}

// In a plan of a trace, ids are blocks of the trace, and times are events.
TEST_F(step_plan_file, is_rejected_with_the_files_that_load_if_it_is_a_plan_of_a_trace) {
  EXPECT_EQ(reason_of("id,lower,upper,size,offset\n3037,5858,6281,936,0\n"),
            ":1: the header is not id,lower,upper,size,alignment,offset");
  EXPECT_EQ(reason_of(std::string{header} + "3037,5858,6281,936,256,0\n"),
            ":2: id is 3037; ids are requests, and the next request is 0");
  EXPECT_EQ(reason_of(std::string{header} + "0,0,4,936,256,0\n1,2,3,936,256,1024\n"),
            ":2: request 0: not live in [request, upper) with upper <= requests, or in [0, requests + 1)");
}

TEST_F(step_plan_file, is_rejected_if_places_of_one_request_differ) {
  const std::string start = header, last = "1,0,3,256,256,4352\n",
                    reason = ":3: request 0: its places differ in size or alignment";
  // A block of 4096 bytes at the place of 16 would lie over the one of request 1.
  EXPECT_EQ(reason_of(start + "0,0,3,4096,256,0\n0,0,3,16,256,4096\n" + last), reason);
  EXPECT_EQ(reason_of(start + "0,0,3,16,256,4096\n0,0,3,4096,256,0\n" + last), reason);
  EXPECT_EQ(reason_of(start + "0,0,3,64,4096,0\n0,0,3,64,16,4112\n" + last), reason);
  EXPECT_EQ(reason_of(start + "0,0,3,64,16,4112\n0,0,3,64,4096,0\n" + last), reason);
  EXPECT_EQ(reason_of(start + "0,0,3,64,16,0\n0,0,3,64,16,64\n0,0,3,48,16,128\n" + last),
            ":4: request 0: its places differ in size or alignment");
}

TEST_F(step_plan_file, is_rejected_if_missing_or_a_folder) {
  EXPECT_EQ(reason(path("none.csv")), ": No such file or directory");
  EXPECT_EQ(reason(folder_.path()), ": Is a directory");
}

// P.23
TEST_F(step_plan_file, is_rejected_or_valid_after_tampering) {
  save_plan(plan_of("a=1000 b=0 c=500 -a d=2000 -b e=10 -d -e -c"), path());
  const std::string good = text(), letters = "0123456789,,\n -x";
  std::mt19937_64 random{4};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::size_t taken = 0;
  constexpr std::size_t files = 300;
  for (std::size_t i = 0; i < files; ++i) {
    std::string bent = good;
    bent.replace(37 + below(bent.size() - 37), below(2), 1, letters[below(letters.size())]);
    write(bent);
    try {
      load_step_plan(path()).require_valid();
      ++taken;
    } catch (std::runtime_error const&) {
    }
  }
  EXPECT_GT(taken, files / 50) << "or nothing was shown of those that are taken";
  EXPECT_LT(taken, files / 2);
}

TEST_F(step_plan_file, is_unchanged_if_it_cannot_be_written) {
  const auto refused = [](step_plan const& plan, std::string const& to) {
    return message_of<std::runtime_error>([&] { save_plan(plan, to); });
  };
  const std::string nowhere = folder_ / "no/step.csv";
  EXPECT_EQ(refused(small_plan(), nowhere), nowhere + ": No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "no"));
  // A folder blocks the path of the file: the new file is removed, the folder's contents stay.
  write("as it was");
  EXPECT_EQ(refused(small_plan(), folder_.path()), folder_.path() + ": Is a directory");
  EXPECT_EQ(text(), "as it was");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + ".unfinished"));
  // In the way of the unfinished one.
  std::filesystem::create_directory(path("step.csv.unfinished"));
  EXPECT_EQ(refused(small_plan(), path()), path() + ": Is a directory");
  EXPECT_TRUE(std::filesystem::exists(path("step.csv.unfinished"))) << "the file belongs to another program";
  EXPECT_EQ(text(), "as it was");
}

TEST_F(step_plan_file, is_not_written_for_a_plan_that_is_not_valid) {
  step_plan plan = small_plan();
  plan.height = 0;
  write("as it was");
  EXPECT_THROW(save_plan(plan, path()), std::invalid_argument);
  EXPECT_EQ(text(), "as it was");
}

TEST_F(step_plan_file, serves_another_arena) {
  const std::string step = "a=1000 b=0 c=500@512 -a d=2000 -b -c -d";
  save_plan(plan_of(step), path());
  planned_arena memory;
  memory.use(load_step_plan(path()));
  EXPECT_EQ(played_steps<planned_arena>{memory}.step(step), 0u);
}

}  // namespace
}  // namespace tidemark::test
