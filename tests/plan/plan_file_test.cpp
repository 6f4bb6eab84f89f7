// SPDX-License-Identifier: Apache-2.0
// Strategy: the blocks of valid files, as values and as text again; the blocks of one step of a small trace,
// known by hand. tests/plan/tool reads bad files through tidemark-plan.
#include "plan_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"
#include "trace_files.hpp"

namespace tidemark::test {
namespace {

using tools::plan_file;

class plan_files : public testing::Test {
 protected:
  plan_file read(std::string const& text) {
    std::ofstream{files_.csv(), std::ios::binary} << text;
    return tools::read_lifetimes(files_.csv());
  }

  trace_files files_;
};

TEST_F(plan_files, columns_are_read_by_name) {
  const plan_file file = read("offset,size,upper,id,alignment,lower\n64,10,5,first one,32,1\n,11,6,b,,2\n");
  EXPECT_EQ(file.ids, (std::vector<std::string>{"first one", "b"}));
  EXPECT_EQ(file.blocks,
            (std::vector<lifetime>{{.lower = 1, .upper = 5, .size = 10, .alignment = 32, .offset = 64},
                                   {.lower = 2, .upper = 6, .size = 11, .alignment = 1, .offset = {}}}));
}

TEST_F(plan_files, line_ends_do_not_matter) {
  const plan_file file = read("id,lower,upper,size\r\n0,1,2,3");
  EXPECT_EQ(file.text(), "id,lower,upper,size\n0,1,2,3\n");
}

TEST_F(plan_files, offsets_are_appended_as_the_last_column) {
  EXPECT_EQ(read("id,lower,upper,size\n0,1,2,3\n007,01,2,3\n").text(std::vector<std::size_t>{5, 10}),
            "id,lower,upper,size,offset\n0,1,2,3,5\n007,01,2,3,10\n");
}

TEST_F(plan_files, offsets_replace_an_existing_column) {
  const std::vector<std::size_t> offsets{5, 123};
  EXPECT_EQ(read("id,lower,upper,size,offset\n0,1,2,3,\n1,1,2,3,123\n").text(offsets),
            "id,lower,upper,size,offset\n0,1,2,3,5\n1,1,2,3,123\n");
  EXPECT_EQ(read("id,offset,lower,upper,size\n0,,1,2,3\n1,0123,1,2,3\n").text(offsets),
            "id,offset,lower,upper,size\n0,5,1,2,3\n1,123,1,2,3\n");
  EXPECT_EQ(read("offset,id,lower,upper,size\n,0,1,2,3\n123,1,1,2,3\n").text(offsets),
            "offset,id,lower,upper,size\n5,0,1,2,3\n123,1,1,2,3\n");
}

TEST_F(plan_files, step_has_the_blocks_that_begin_and_end_in_it) {
  // Events 2 to 8 are the step. 10 is from before, 20 and 21 die in it, 22 after it, and 23 never.
  std::ofstream{files_.csv()} << "op,id,bytes,thread\na,10,1,0\na,11,1,0\na,20,7,0\na,22,8,0\na,21,0,0\n"
                                 "f,10,0,0\nf,20,0,0\na,23,9,0\nf,21,0,0\nf,22,0,0\nf,11,0,0\n";
  const tools::step_lifetimes found = tools::lifetimes_of(tools::read_trace(files_.csv()), {2, 8});
  EXPECT_EQ(found.within.text(), "id,lower,upper,size\n20,2,6,7\n21,4,8,0\n");
  EXPECT_EQ(found.within.ids, (std::vector<std::string>{"20", "21"}));
  EXPECT_EQ(found.within.blocks, (std::vector<lifetime>{{.lower = 2, .upper = 6, .size = 7},
                                                        {.lower = 4, .upper = 8, .size = 0}}));
  EXPECT_EQ(found.outliving, 2u);
  EXPECT_EQ(found.from_before, 1u);
}

TEST_F(plan_files, steps_in_order_do_not_overlap) {
  std::ofstream{files_.csv()} << "op,id,bytes,thread\ns,7,a,0\na,0,1,0\ne,7,0,0\ns,2,b,0\na,1,1,0\ns,3,c,0\n"
                                 "a,2,1,0\ne,2,0,0\na,3,1,0\ns,1,d,0\nf,0,0,0\n";
  std::string found;
  for (tools::trace_step const& step : tools::steps_in_order(tools::read_trace(files_.csv())))
    found += std::to_string(step.first_event) + " to " + std::to_string(step.last_event) + ", ";
  EXPECT_EQ(found, "0 to 0, 1 to 2, 4 to 4, ") << "c begins in b";
}

// P.15
TEST_F(plan_files, recorded_step_equals_its_lifetimes_file) {
  const std::string path = TIDEMARK_TRACES "/torch_gpt";
  const tools::recorded_trace trace = tools::read_trace(path + ".csv");
  const tools::trace_step step = trace.steps.at(3);
  const tools::step_lifetimes found = tools::lifetimes_of(trace, step);
  EXPECT_EQ(found.within.text(), text_of(path + "_lifetimes.csv"));
  EXPECT_EQ(found.outliving, 4u);
}

}  // namespace
}  // namespace tidemark::test
