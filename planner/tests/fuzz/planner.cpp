// SPDX-License-Identifier: Apache-2.0
// Fuzzes the inputs of tidemark-plan other than tables: logs of ggml, dumps of XLA, and arguments. The first
// byte selects the input. An input is rejected with one line that names the file and has no control
// characters. An accepted input survives being written and read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "fuzz_file.hpp"
#include "imported_lifetimes.hpp"
#include "plan_file.hpp"

namespace tidemark::fuzz {
namespace {

/// Reads another program's printed plan.
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
    const bool is_short = word.starts_with('-') && !word.starts_with("--");
    if (word.starts_with("--help") || (is_short && word.find('h') != word.npos)) return;  // prints a page
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
    default:
      break;
  }
  return 0;
}
