// SPDX-License-Identifier: Apache-2.0
// Strategy: files of steps for one small trace: valid files, one file for each rule that can be broken, and
// many files with random changes; and the recorded files. tests/telemetry/trace does the same for traces.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "recorded_trace.hpp"
#include "trace_files.hpp"

namespace tidemark::test {
namespace {

using tools::recorded_trace;
using tools::trace_step;

class recorded_steps : public testing::Test {
 protected:
  static constexpr std::size_t events = 10;
  static constexpr char const* header = "step,first_event,last_event\n";

  /// Returns the steps of such a file as "2 to 4, 5 to 5", or the reason for rejecting it, without the file's
  /// name.
  std::string read(std::string const& text) {
    std::ofstream{files_.csv(), std::ios::binary} << text;
    return read_file(files_.csv());
  }
  std::string read_file(std::string const& path) {
    try {
      std::string said;
      for (trace_step const& step : tools::read_steps(path, trace_)) {
        said += (said.empty() ? "" : ", ") + std::to_string(step.first_event) + " to " +
                std::to_string(step.last_event);
      }
      return said;
    } catch (std::runtime_error const& error) {
      const std::string sentence = error.what();
      EXPECT_TRUE(sentence.starts_with(path + ":")) << sentence;
      return sentence.substr(path.size());
    }
  }

  trace_files files_;
  recorded_trace trace_{
      .events = std::vector<tools::trace_event>(events, {true, 0, 0, 0}), .left = {}, .ids = {}};
};

TEST_F(recorded_steps, reads_every_valid_file) {
  const std::string rows = "0,2,4\n1,5,5\n2,7,9\n", read_so = "2 to 4, 5 to 5, 7 to 9";
  EXPECT_EQ(read(header + rows), read_so);
  EXPECT_EQ(read(header + rows.substr(0, rows.size() - 1)), read_so) << "no line end at the end";
  EXPECT_EQ(read("step,first_event,last_event\r\n0,2,4\r\n"), "2 to 4");
  EXPECT_EQ(read(header + std::string{"0,00000000000000000000,9\n"}), "0 to 9");
  EXPECT_EQ(read(header), "") << "no steps";
}

TEST_F(recorded_steps, rejects_every_invalid_file_with_line_and_reason) {
  const std::string start = header;
  const std::pair<std::string, std::string> bad[] = {
      {"", ":1: the file is empty; it should begin with step,first_event,last_event"},
      {"op,id,bytes,thread\n", ":1: the header is 'op,id,bytes,thread', not step,first_event,last_event"},
      {start + "\n", ":2: the row is empty"},
      {start + "0,2\n", ":2: the row has 2 fields, not 3"},
      {start + "0,2,4,0\n", ":2: the row has 4 fields, not 3"},
      {start + "x,2,4\n", ":2: step is 'x', not a whole number"},
      {start + "0,-1,4\n", ":2: first_event is '-1', not a whole number"},
      {start + "0,2, 4\n", ":2: last_event is ' 4', not a whole number"},
      {start + "0,2,18446744073709551616\n", ":2: last_event is '18446744073709551616', more than 2^64 - 1"},
      {start + "0,2,18446744073709551615\n",
       ":2: last_event is 18446744073709551615, and the trace has 10 events"},
      {start + "0,2,10\n", ":2: last_event is 10, and the trace has 10 events"},
      {start + "0,4,3\n", ":2: last_event is 3, before first_event, 4"},
      {start + "1,2,4\n", ":2: step is 1, expected 0"},
      {start + "0,2,4\n0,5,6\n", ":3: step is 0, expected 1"},
      {start + "0,2,4\n2,5,6\n", ":3: step is 2, expected 1"},
      {start + "0,2,4\n1,4,6\n", ":3: first_event is 4, but the previous step ends at 4"},
      {start + "0,5,6\n1,2,4\n", ":3: first_event is 2, but the previous step ends at 6"},
  };
  for (auto const& [text, reason] : bad) EXPECT_EQ(read(text), reason) << text;
}

TEST_F(recorded_steps, tampered_files_are_rejected_or_in_order) {
  std::mt19937_64 random{4};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::string good = header + std::string{"0,2,4\n1,5,5\n2,7,9\n"}, letters = "0123456789,,\n\r -x";
  std::size_t taken = 0;
  constexpr std::size_t files = 500;
  for (std::size_t i = 0; i < files; ++i) {
    std::string text = good;
    // Mostly after the header, because faults in the header are found early.
    const std::size_t place = below(10) == 0 ? below(text.size()) : 28 + below(text.size() - 28);
    text.replace(place, below(2), 1, letters[below(letters.size())]);
    std::ofstream{files_.csv(), std::ios::binary} << text;
    try {
      std::size_t next = 0;
      for (trace_step const& step : tools::read_steps(files_.csv(), trace_)) {
        EXPECT_LE(next, step.first_event) << text;
        EXPECT_LE(step.first_event, step.last_event) << text;
        EXPECT_LT(step.last_event, events) << text;
        next = step.last_event + 1;
      }
      ++taken;
    } catch (std::runtime_error const&) {
    }
  }
  EXPECT_GT(taken, files / 20) << "or nothing was shown of those that are taken";
  EXPECT_LT(taken, files / 2);
}

TEST_F(recorded_steps, names_a_file_that_cannot_be_read) {
  EXPECT_EQ(read_file(files_.chrome()), ": No such file or directory");
  EXPECT_EQ(read_file(testing::TempDir()), ": Is a directory");
}

TEST_F(recorded_steps, shipped_files_fit_their_traces) {
  for (auto const& [name, count] : {std::pair{"torch_gpt", 5u}, std::pair{"torch_mlp", 51u}}) {
    const std::string path = std::string{TIDEMARK_TRACES "/"} + name;
    const recorded_trace trace = tools::read_trace(path + ".csv");
    EXPECT_EQ(tools::read_steps(path + "_steps.csv", trace).size(), count) << name;
  }
}

}  // namespace
}  // namespace tidemark::test
