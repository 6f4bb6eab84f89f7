// SPDX-License-Identifier: Apache-2.0
// Every file format, read from a fuzzer's bytes; the first byte says which: plans of steps, lifetimes, traces, steps of a
// trace, logs of ggml, dumps of XLA, and besides the arguments of tidemark-plan. What is refused is refused with one line that names the file and
// has no control characters. What is read keeps its rules, and survives being written and read again.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/plan/replay/step_plan.hpp>

#include "command_line.hpp"
#include "imported_lifetimes.hpp"
#include "plan_file.hpp"
#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"

namespace tidemark::fuzz {
namespace {

void require(bool holds, std::string const& what) {
  if (holds) return;
  std::fprintf(stderr, "not true: %s\n", what.c_str());
  std::abort();
}

/// A file without a disk.
class memory_file {
 public:
  explicit memory_file(std::string_view text)
      : descriptor_{memfd_create("fuzz", 0)}, path_{"/proc/self/fd/" + std::to_string(descriptor_)} {
    require(write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "the input is written");
  }
  memory_file(memory_file const&) = delete;
  memory_file& operator=(memory_file const&) = delete;
  ~memory_file() { close(descriptor_); }
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

void require_one_line(std::string_view sentence) {
  require(!sentence.empty(), "a refusal has a sentence");
  for (const char c : sentence)
    require(static_cast<unsigned char>(c) >= ' ' && c != 127,
            "a sentence has no control characters: '" + std::string{sentence} + "'");
}

/// Reads, and requires of a refusal that it names the file. @return whether it was read
template <class Read>
bool reads(memory_file const& file, Read const& read) {
  try {
    read(file.path());
    return true;
  } catch (std::runtime_error const& error) {
    require_one_line(error.what());
    require(std::string_view{error.what()}.starts_with(file.path() + ":"),
            "'" + std::string{error.what()} + "' names the file");
  } catch (std::bad_alloc const&) {  // a number that is too large
  }
  return false;
}

void read_plan(std::string_view text) {
  const memory_file file{text};
  step_plan plan;
  if (!reads(file, [&](std::string const& path) { plan = load_step_plan(path); })) return;
  plan.require_valid();
  char name[] = "/tmp/tidemark-fuzz-XXXXXX";  // a plan is written beside its place, and then moved there
  const int descriptor = mkstemp(name);
  close(descriptor);
  save_plan(plan, name);
  const step_plan again = load_step_plan(name);
  unlink(name);
  require(again.blocks == plan.blocks && again.requests == plan.requests && again.height == plan.height,
          "a plan survives its file");
}

void read_blocks(std::string_view text) {
  const memory_file file{text};
  tools::plan_file blocks;
  if (!reads(file, [&](std::string const& path) { blocks = tools::read_lifetimes(path); })) return;
  require(blocks.ids.size() == blocks.blocks.size() && blocks.rows.size() == blocks.blocks.size(),
          "a row has a block and an id");
  for (lifetime const& block : blocks.blocks)
    require(block.lower <= block.upper, "a life does not end before it begins");
  const memory_file written{blocks.text()};
  const tools::plan_file again = tools::read_lifetimes(written.path());
  require(again.blocks == blocks.blocks && again.rows == blocks.rows, "lifetimes survive their file");
}

void read_events(std::string_view text, std::string_view steps) {
  const memory_file file{text};
  tools::recorded_trace trace;
  if (!reads(file, [&](std::string const& path) { trace = tools::read_trace(path); })) return;
  std::vector<char> live(trace.blocks, 0), was(trace.blocks, 0);
  const auto play = [&](tools::trace_event const& event) {
    require(event.block < trace.blocks && event.thread < trace.threads,
            "an event is of a block and a thread that there are");
    require(live[event.block] != event.allocates && !(event.allocates && was[event.block]),
            "a block is allocated once, and freed once");
    live[event.block] = was[event.block] = event.allocates;
    was[event.block] = 1;
  };
  for (tools::trace_event const& event : trace.events) play(event);
  for (tools::trace_event const& event : trace.left) play(event);
  require(std::ranges::count(live, 1) == 0, "what is left is freed at the end");
  const memory_file of_steps{steps};
  std::vector<tools::trace_step> read;
  if (!reads(of_steps, [&](std::string const& path) { read = tools::read_steps(path, trace); })) return;
  for (tools::trace_step const& step : read) {
    require(step.first_event <= step.last_event && step.last_event < trace.events.size(),
            "a step has events that there are");
    (void)tools::lifetimes_of(trace, step);
  }
}

/// What other programs print of their plans.
template <class Read>
void read_import(std::string_view text, Read const& read) {
  const memory_file file{text};
  tools::imported_lifetimes found;
  if (!reads(file, [&](std::string const& path) { found = read(path); })) return;
  require(found.lines.size() == found.file.blocks.size(), "a block has a line");
  const memory_file written{found.file.text()};
  const tools::plan_file again = tools::read_lifetimes(written.path());
  require(again.blocks == found.file.blocks && again.ids == found.file.ids, "lifetimes survive their file");
}

void read_arguments(std::string_view text) {
  std::vector<std::string> words{"tidemark-plan"};
  while (!text.empty() && words.size() < 40) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    words.emplace_back(text.substr(0, end).substr(0, text.find('\0')));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::vector<char const*> pointers;
  for (std::string const& word : words) {
    if (word == "--help" || word == "-h") return;  // prints a page
    pointers.push_back(word.c_str());
  }
  try {
    (void)tools::read_command_line(static_cast<int>(pointers.size()), pointers.data());
  } catch (std::runtime_error const& error) {
    require(*error.what() != '\0', "a refusal has a sentence");
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace tidemark::fuzz;
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<char const*>(data) + 1, size - 1};
  switch (data[0]) {
    case 'p':
      read_plan(text);
      break;
    case 'l':
      read_blocks(text);
      break;
    case 'g':
      read_import(text, [](std::string const& path) { return tidemark::tools::read_ggml_log(path); });
      break;
    case 'x':
      read_import(text,
                  [](std::string const& path) { return tidemark::tools::read_xla_dump(path, std::nullopt); });
      break;
    case 'a':
      read_arguments(text);
      break;
    case 't': {
      const std::size_t steps = std::min(text.find("step,"), text.size());
      read_events(text.substr(0, steps), text.substr(steps));
      break;
    }
    default:
      break;
  }
  return 0;
}
