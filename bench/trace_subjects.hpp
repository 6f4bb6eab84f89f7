// SPDX-License-Identifier: Apache-2.0
// The traces and allocators of topic traces, for the benchmarks of time (traces_bench.cpp) and of memory
// (trace_footprint.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "peers.hpp"
#include "recorded_trace.hpp"

namespace tidemark::bench {

// ---- traces -----------------------------------------------------------------------------------------------

struct trace_file {
  std::string name;   ///< as in the names of benchmarks: "torch_gpt"
  std::string path;   ///< of a file in the format of docs/traces.md
  bool many_threads;  ///< true if the trace may have several threads; user files are not read for this
  bool has_steps;     ///< true if the trace may have steps, in the same way
};

/// Environment variable with the paths of further traces, separated by colons.
inline constexpr char const* traces_variable = "TIDEMARK_BENCH_TRACES";

/// Returns the paths in a variable's value.
inline std::vector<std::string> paths_in(char const* variable) {
  char const* const value = std::getenv(variable);
  std::vector<std::string> paths;
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    paths.emplace_back(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), paths.back().size() + 1));
  }
  return paths;
}

/// Returns the name of a file without a given name: its stem, with characters that are special in JSON
/// replaced.
inline std::string trace_name(std::string const& path) {
  std::string name = std::filesystem::path{path}.stem().string();
  const auto is_for_no_name = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '"' || c == '\\';
  };
  std::ranges::replace_if(name, is_for_no_name, '?');
  return name;
}

/// Returns the recorded traces and the user's traces. A repeated name gets a number, which a message on
/// stderr reports.
inline std::vector<trace_file> find_trace_files() {
  std::vector<trace_file> files;
  for (char const* name : {"clang_syntax", "lld_link", "torch_gpt", "torch_mlp"}) {
    files.push_back({.name = name,
                     .path = std::string{TIDEMARK_TRACES "/"} + name + ".csv",
                     .many_threads = std::string_view{name} == "lld_link",
                     .has_steps = std::string_view{name}.starts_with("torch")});
  }
  for (std::string const& path : paths_in(traces_variable)) {
    if (path.empty()) continue;
    const std::string stem = trace_name(path);
    std::string name = stem;
    for (int number = 2; std::ranges::find(files, name, &trace_file::name) != files.end(); ++number) {
      name = stem + '_' + std::to_string(number);
    }
    if (name != stem) {
      std::fprintf(stderr, "two traces are named %s: %s is called %s\n", stem.c_str(), path.c_str(),
                   name.c_str());
    }
    files.push_back({.name = name, .path = path, .many_threads = true, .has_steps = true});
  }
  return files;
}

inline std::vector<trace_file> const& trace_files() {
  static const std::vector<trace_file> once = find_trace_files();
  return once;
}

/// Returns size classes of a pool that fit a trace.
inline std::vector<std::size_t> fitted_classes(tools::recorded_trace const& trace) {
  size_histogram sizes;
  for (tools::trace_event const& event : trace.events) {
    if (event.allocates) sizes.record(event.bytes);
  }
  return sizes.suggest_size_classes(64, 1 * GiB);
}

// ---- allocators -------------------------------------------------------------------------------------------

/// An allocator that serves blocks of any size and takes them back in any order.
struct trace_subject {
  std::string name;  ///< as in the names of benchmarks: "pool"
  bool shared;       ///< true if threads may use it concurrently
  /// Returns a new resource, or the single one of the process. `classes` are fitted to its trace.
  std::function<std::shared_ptr<std::pmr::memory_resource>(std::vector<std::size_t> const& classes)> make;
};

/// Returns tidemark's allocators and the available peers. (An arena frees nothing, and a planned arena needs
/// steps: training_step_bench.cpp. The global pool is a synchronized pool.)
inline std::vector<trace_subject> const& trace_subjects() {
  static const std::vector<trace_subject> once = [] {
    using sizes = std::vector<std::size_t>;
    std::vector<trace_subject> all{
        {"pool", false, [](sizes const&) { return std::make_shared<pool>(); }},
        {"fitted_pool", false,
         [](sizes const& classes) {
           return std::make_shared<pool>(pool_options{.max_cached_bytes = 1 * GiB, .size_classes = classes});
         }},
        {"synchronized_pool", true, [](sizes const&) { return std::make_shared<synchronized_pool>(); }}};
    for (peer const& one : peers()) {
      all.push_back({one.name, one.shared, [make = one.make](sizes const&) { return make(); }});
    }
    return all;
  }();
  return once;
}

}  // namespace tidemark::bench
