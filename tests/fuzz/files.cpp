// SPDX-License-Identifier: Apache-2.0
// Fuzzes every file format; the first byte selects it: plans of steps, lifetimes, traces, files of
// process arenas. Invalid input is rejected with one line that names the file and has no control
// characters. Valid input keeps its rules, and survives being written and read again. The fuzzer changes rows
// and fields of tables, not only bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/plan/replay/step_plan.hpp>
#include <tidemark/process/detail/process_format.hpp>
#include <tidemark/process/process_arena.hpp>
#include <tidemark/process/process_view.hpp>
#include <tidemark/process/shared_memory.hpp>

#include "fuzz_file.hpp"
#include "plan_file.hpp"
#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"

namespace tidemark::fuzz {
namespace {

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

void read_events(std::string_view text) {
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
  for (auto const& [number, step] : trace.steps) {
    require(step.first_event <= step.last_event && step.last_event < trace.events.size(),
            "a step has events that there are");
    (void)tools::lifetimes_of(trace, step);
  }
}

/// The file of a process arena with one generation, whose root is a number.
struct image {
  image() {
    process_arena memory{{.reserve = 16 * KiB, .commit_step = 4 * KiB}};
    root = memory.push<std::uint64_t>(42u);
    (void)memory.publish(*root);
    bytes.resize(memory.stats().reserved_bytes);
    const file_descriptor file = memory.export_file();
    require(pread(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "an arena's file is read");
  }
  std::uint64_t const* root;
  std::vector<std::byte> bytes;
};

/// A word of the file becomes another number. Ten bytes of the input.
struct change {
  std::uint8_t how;   // the number, or a number near the old one or near an address; before or after mapping
  std::uint8_t word;  // of the header, of the generation behind the root, or any
  std::uint64_t number;

  void make_in(std::vector<std::byte>& bytes) const {
    constexpr std::size_t header_words = sizeof(detail::process_header) / 8, words = header_words + 5;
    const std::size_t at = word < words ? word : word * std::size_t{8} % (bytes.size() / 8);
    std::uint64_t was = 0, now = number;
    std::memcpy(&was, bytes.data() + at * 8, sizeof was);
    if (how % 4 == 1) now = was ^ std::uint64_t{1} << number % 64;
    if (how % 4 == 2) now = was + number % 64 * 8 - 256;
    if (how % 4 == 3) std::memcpy(&now, bytes.data() + 16, sizeof now), now += number % (2 * bytes.size());
    std::memcpy(bytes.data() + at * 8, &now, sizeof now);
  }
  [[nodiscard]] bool is_later() const { return how >= 128; }
};

void write_image(int file, std::vector<std::byte> const& bytes) {
  require(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "the image is written");
}

void read_root(process_view const& view) {
  std::uint64_t const& root = view.root<std::uint64_t>();
  const auto at = reinterpret_cast<std::uintptr_t>(&root);
  require(at % alignof(std::uint64_t) == 0 && view.range().contains(at) &&
              view.range().contains(at + sizeof root - 1),
          "a root lies in the file");
  std::uint64_t volatile const& read = root;
  (void)read;
}

void read_image(std::string_view text) {
  // ThreadSanitizer ends a program that maps addresses without shadow memory, which an image may request.
  if (detail::thread_sanitizer_is_on) return;
  static const image whole;
  std::vector<std::byte> bytes = whole.bytes;
  std::vector<change> later;
  for (; text.size() >= 10; text.remove_prefix(10)) {
    change next{static_cast<std::uint8_t>(text[0]), static_cast<std::uint8_t>(text[1]), 0};
    std::memcpy(&next.number, text.data() + 2, sizeof next.number);
    if (next.is_later()) later.push_back(next);
    else next.make_in(bytes);
  }
  const int file = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  write_image(file, bytes);
  require(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "the image is sealed");
  try {
    process_view view{file};
    read_root(view);
    for (change const& next : later) next.make_in(bytes);
    write_image(file, bytes);  // a writer may do anything while a view exists
    const std::uint64_t before = view.generation();
    (void)view.is_newest();
    require(!view.update() || view.generation() > before, "generations rise");
    read_root(view);
  } catch (shared_memory_error const& error) {
    require_one_line(error.what());
  } catch (std::system_error const& error) {  // its addresses are the kernel's, or taken
    require_one_line(error.what());
  }
  close(file);
}

// ---- changes of tables

using row = std::vector<std::string>;

std::vector<row> rows_of(std::string_view text) {
  std::vector<row> rows(1, row(1));
  for (const char c : text) {
    if (c == '\n') rows.emplace_back(1);
    else if (c == ',') rows.back().emplace_back();
    else rows.back().back() += c;
  }
  return rows;
}

std::string text_of(std::vector<row> const& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) text += '\n';
    for (std::size_t j = 0; j < rows[i].size(); ++j) text += (j > 0 ? "," : "") + rows[i][j];
  }
  return text;
}

/// A number near that of the field, or near a power of two.
std::string near(std::string const& field, std::mt19937& random) {
  const std::uint64_t was = std::strtoull(field.c_str(), nullptr, 10);
  switch (random() % 6) {
    case 0:
      return std::to_string(was + 1);
    case 1:
      return std::to_string(was - 1);
    case 2:
      return std::to_string(was * 2);
    case 3:
      return std::to_string((std::uint64_t{1} << random() % 64) - random() % 2);
    case 4:
      return std::to_string(was + 16 * (random() % 64));
    default:
      return std::to_string(random() % 10);
  }
}

void change_table(std::vector<row>& rows, std::mt19937& random) {
  const auto any = [&](auto& range) -> auto& { return range[random() % range.size()]; };
  const auto at = rows.begin() + static_cast<std::ptrdiff_t>(random() % rows.size());
  row& one = *at;
  row& other = any(rows);
  switch (random() % 8) {
    case 0:
      rows.insert(at, row{other});
      break;
    case 1:
      if (rows.size() > 1) rows.erase(at);
      break;
    case 2:
      std::swap(one, other);
      break;
    case 3:
      any(one) = any(other);
      break;
    case 4:
      if (one.size() > 1) one.pop_back();
      else one.push_back(any(other));
      break;
    default:
      any(one) = near(any(one), random);
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// libFuzzer's hook: derives the next input from this one.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace tidemark::fuzz;
  std::mt19937 random{seed};
  const bool is_table = size > 1 && std::memchr("plt", data[0], 3) != nullptr;
  if (!is_table || random() % 3 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::vector<row> rows = rows_of({reinterpret_cast<char const*>(data) + 1, size - 1});
  for (std::size_t n = 1 + random() % 3; n > 0; --n) change_table(rows, random);
  const std::string text = text_of(rows);
  const std::size_t length = std::min(text.size(), max_size - 1);
  std::memcpy(data + 1, text.data(), length);
  return length + 1;
}

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
    case 'v':
      read_image(text);
      break;
    case 't':
      read_events(text);
      break;
    default:
      break;
  }
  return 0;
}
