// SPDX-License-Identifier: Apache-2.0
// The files of a trace in their own folder, and their contents.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "temporary_folder.hpp"

namespace tidemark::test {

inline std::string text_of(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A folder with the files of one trace, gone at its end.
class trace_files {
 public:
  [[nodiscard]] std::string csv() const { return folder_ / "run.csv"; }
  [[nodiscard]] std::string chrome() const { return folder_ / "run.json"; }

  /// The lines of the Chrome trace that are events of one kind, in order.
  [[nodiscard]] std::vector<std::string> events(std::string const& kind) const {
    std::vector<std::string> found;
    std::ifstream file{chrome()};
    for (std::string line; std::getline(file, line);) {
      if (line.find(R"("ph":")" + kind + '"') != std::string::npos) found.push_back(line);
    }
    return found;
  }

  /// The live bytes that the Chrome trace draws for one resource, in order.
  [[nodiscard]] std::vector<std::size_t> counter(std::string const& name) const {
    std::vector<std::size_t> values;
    for (std::string const& event : events("C")) {
      if (event.find(R"("name":")" + name + '"') == std::string::npos) continue;
      const std::string key = R"("live bytes":)";
      values.push_back(std::stoull(event.substr(event.find(key) + key.size())));
    }
    return values;
  }

 private:
  temporary_folder folder_;
};

/// The rows of a CSV trace that are events, without those that name resources and places.
inline std::string events_of(std::string const& path) {
  std::istringstream text{text_of(path)};
  std::string events;
  for (std::string line; std::getline(text, line);) {
    if (line[0] != 'r' && line[0] != 'p') events += line + '\n';
  }
  return events;
}

/// Reads the rows of a CSV trace like a replaying program. A row that cannot be replayed is a failure.
struct replayed_trace {
  explicit replayed_trace(std::string const& path) {
    std::ifstream file{path};
    std::string line;
    EXPECT_TRUE(std::getline(file, line));
    EXPECT_EQ(line, "op,id,bytes,thread");
    while (std::getline(file, line)) {
      if (std::string_view{"rpse"}.find(line[0]) == std::string_view::npos) read(line);
    }
  }

  std::size_t allocations = 0, deallocations = 0, freed_by_another_thread = 0;
  std::size_t max_live_blocks = 0, live_bytes = 0, max_live_bytes = 0;
  std::set<std::uint64_t> threads;
  std::vector<std::size_t> sizes;  // by id

 private:
  struct block {
    std::size_t bytes;
    std::uint64_t thread;
  };

  void read(std::string const& line) {
    char op = 0, comma[3] = {};
    std::uint64_t id = 0, thread = 0;
    std::size_t bytes = 0;
    std::istringstream row{line};
    row >> op >> comma[0] >> id >> comma[1] >> bytes >> comma[2] >> thread;
    ASSERT_TRUE(row && row.eof() && std::string(comma, 3) == ",,,") << line;
    threads.insert(thread);
    if (op == 'a') {
      ASSERT_EQ(id, allocations) << "blocks are numbered in order";
      ++allocations;
      sizes.push_back(bytes);
      live_.emplace(id, block{bytes, thread});
      live_bytes += bytes;
      max_live_bytes = std::max(max_live_bytes, live_bytes);
      max_live_blocks = std::max(max_live_blocks, live_.size());
    } else {
      ASSERT_EQ(op, 'f');
      EXPECT_EQ(bytes, 0u);
      const auto found = live_.find(id);
      ASSERT_NE(found, live_.end()) << "freed and not live: " << line;
      ++deallocations;
      freed_by_another_thread += found->second.thread != thread ? 1 : 0;
      live_bytes -= found->second.bytes;
      live_.erase(found);
    }
  }

  std::map<std::uint64_t, block> live_;
};

}  // namespace tidemark::test
