// SPDX-License-Identifier: Apache-2.0
#include "recorded_trace.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace tidemark::tools {
namespace {

constexpr std::string_view header = "op,id,bytes,thread";

class reader {
 public:
  explicit reader(std::string const& path) : path_{path} {}

  recorded_trace read() {
    std::ifstream file{path_};
    if (!file) throw std::runtime_error(path_ + ": " + std::generic_category().message(errno));
    std::string line;
    if (!next(file, line) || line != header) fail("the first line is not '" + std::string{header} + "'");
    while (next(file, line)) add(line);
    if (file.bad()) throw std::runtime_error(path_ + ": it cannot be read to its end");
    for (auto const& [block, bytes] : live_) trace_.left.push_back({false, 0, block, bytes});
    return std::move(trace_);
  }

 private:
  bool next(std::istream& file, std::string& line) {
    ++line_;
    return static_cast<bool>(std::getline(file, line));
  }

  [[noreturn]] void fail(std::string const& reason) const {
    throw std::runtime_error(path_ + ":" + std::to_string(line_) + ": " + reason);
  }

  std::size_t number(std::string_view text, char const* what) const {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      fail(std::string{what} + " is '" + std::string{text} + "', which is no whole number");
    }
    return value;
  }

  void add(std::string_view line) {
    std::string_view fields[4];
    const auto commas = std::ranges::count(line, ',');
    if (commas != 3) fail(std::to_string(commas + 1) + " fields instead of 4");
    for (std::string_view& field : fields) {
      field = line.substr(0, line.find(','));
      line.remove_prefix(std::min(line.size(), field.size() + 1));
    }
    const std::size_t id = number(fields[1], "id"), bytes = number(fields[2], "bytes");
    const std::size_t thread = number(fields[3], "thread");
    if (thread >= threads_max)
      fail("thread " + std::to_string(thread) + ": there can be " + std::to_string(threads_max));
    trace_event event{fields[0] == "a", static_cast<std::uint32_t>(thread), 0, bytes};
    if (event.allocates) {
      const auto [known, is_new] = numbers_.emplace(id, trace_.blocks);
      if (!is_new) fail("block " + std::to_string(id) + " is allocated a second time");
      event.block = trace_.blocks++;
      live_.emplace(event.block, bytes);
      live_bytes_ += bytes;
      trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
    } else if (fields[0] == "f") {
      const auto known = numbers_.find(id);
      const auto found = known != numbers_.end() ? live_.find(known->second) : live_.end();
      if (found == live_.end()) fail("block " + std::to_string(id) + " is freed, which is not live");
      event.block = found->first;
      event.bytes = found->second;
      live_bytes_ -= event.bytes;
      live_.erase(found);
    } else {
      fail("op is '" + std::string{fields[0]} + "', which is neither a nor f");
    }
    trace_.threads = std::max<std::size_t>(trace_.threads, event.thread + 1u);
    trace_.events.push_back(event);
  }

  static constexpr std::size_t threads_max = 1024;  // a replay starts one for each

  std::string const& path_;
  std::size_t line_ = 0;
  recorded_trace trace_;
  std::map<std::size_t, std::size_t> numbers_;  // of blocks, by id
  std::map<std::size_t, std::size_t> live_;     // bytes, by number
  std::size_t live_bytes_ = 0;
};

}  // namespace

recorded_trace read_trace(std::string const& path) { return reader{path}.read(); }

threaded_replay::threaded_replay(recorded_trace const& trace)
    : of_thread_(std::max<std::size_t>(1, trace.threads)), blocks_(trace.blocks) {
  for (trace_event const& event : trace.events) of_thread_[event.thread].push_back(event);
  for (trace_event const& event : trace.left) of_thread_[0].push_back(event);
}

void threaded_replay::run(std::pmr::memory_resource& resource) {
  for (std::atomic<void*>& block : blocks_) block.store(nullptr, std::memory_order_relaxed);
  const auto play = [&](std::vector<trace_event> const& events) {
    for (trace_event const& event : events) {
      std::atomic<void*>& place = blocks_[event.block];
      if (event.allocates) {
        void* const block = resource.allocate(event.bytes, replay_alignment);
        if (event.bytes > 0) *static_cast<char volatile*>(block) = 1;
        place.store(block, std::memory_order_release);
      } else {
        void* block = nullptr;
        while ((block = place.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        resource.deallocate(block, event.bytes, replay_alignment);
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < of_thread_.size(); ++i) threads.emplace_back(play, std::cref(of_thread_[i]));
  play(of_thread_[0]);
}

}  // namespace tidemark::tools
