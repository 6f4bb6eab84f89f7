// SPDX-License-Identifier: Apache-2.0
#include "recorded_trace.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

#include "table.hpp"

namespace tidemark::tools {
namespace {

constexpr std::size_t max_number = std::numeric_limits<std::uint64_t>::max();

/// Reads a trace as docs/traces.md defines it. tests/telemetry/trace/readers.py compares it with
/// tidemark-report.
class reader {
 public:
  explicit reader(std::string const& path) : rows_{path, "op,id,bytes,thread"} {}

  recorded_trace read() {
    std::string_view fields[4];
    while (rows_.next_row(fields)) add(fields);
    trace_.threads = threads_.size();
    for (auto const& [number, first] : open_steps_) end_step(number, first);
    for (auto const& [id, known] : blocks_) {
      if (!known.freed_by) trace_.left.push_back({false, 0, known.number, known.bytes});
    }
    return std::move(trace_);
  }

 private:
  struct block {
    std::size_t number, bytes, allocated_by;  // by: the number of the event
    std::optional<std::size_t> freed_by;
  };

  [[noreturn]] void fail(std::string const& reason) const { rows_.fail(reason); }

  void add(std::string_view const (&fields)[4]) {
    const char op = fields[0].size() == 1 ? fields[0][0] : '?';
    if (std::string_view{"afrpse"}.find(op) == std::string_view::npos)
      fail("op is '" + printable(fields[0]) + "', none of a, f, r, p, s and e");
    const bool has_text = op == 'r' || op == 'p' || op == 's';
    const std::size_t id = rows_.number("id", fields[1]);
    const std::size_t bytes = has_text ? 0 : rows_.number("bytes", fields[2]);
    const std::size_t thread = rows_.number("thread", fields[3]);
    if (op == 's' || op == 'e') return mark_step(op == 's', id, bytes);
    if (has_text) return;
    // Renumbers threads, because a replay has an entry for each thread number.
    const auto by = static_cast<std::uint32_t>(threads_.try_emplace(thread, threads_.size()).first->second);
    trace_.events.push_back(fields[0] == "a" ? allocation(id, bytes, by) : deallocation(id, bytes, by));
  }

  void mark_step(bool begins, std::size_t number, std::size_t bytes) {
    const std::string step = "step " + std::to_string(number);
    if (bytes != 0) fail("bytes is " + std::to_string(bytes) + ", expected 0 in a row that ends a step");
    if (begins) {
      if (!known_steps_.insert(number).second) fail(step + " begins twice");
      open_steps_[number] = trace_.events.size();
      return;
    }
    const auto open = open_steps_.find(number);
    if (open == open_steps_.end()) fail(step + " ends and is not open");
    end_step(number, open->second);
    open_steps_.erase(open);
  }
  void end_step(std::size_t number, std::size_t first) {
    if (first < trace_.events.size()) trace_.steps[number] = {first, trace_.events.size() - 1};
  }

  trace_event allocation(std::size_t id, std::size_t bytes, std::uint32_t by) {
    const auto [found, is_new] =
        blocks_.try_emplace(id, block{trace_.blocks, bytes, trace_.events.size(), {}});
    if (!is_new) {
      fail("block " + std::to_string(id) + " is allocated twice; first by event " +
           std::to_string(found->second.allocated_by));
    }
    if (bytes > max_number - live_bytes_) fail("more than 2^64 - 1 bytes are live");
    trace_.ids.push_back(id);
    live_bytes_ += bytes;
    trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
    return {true, by, trace_.blocks++, bytes};
  }

  trace_event deallocation(std::size_t id, std::size_t bytes, std::uint32_t by) {
    if (bytes != 0) fail("bytes is " + std::to_string(bytes) + ", expected 0 in a row that frees");
    const auto found = blocks_.find(id);
    if (found == blocks_.end()) fail("block " + std::to_string(id) + " is freed and was never allocated");
    block& known = found->second;
    if (known.freed_by) {
      fail("block " + std::to_string(id) + " is freed twice; first by event " +
           std::to_string(*known.freed_by));
    }
    known.freed_by = trace_.events.size();
    live_bytes_ -= known.bytes;
    return {false, by, known.number, known.bytes};
  }

  table rows_;
  recorded_trace trace_;
  std::map<std::size_t, block> blocks_;            // by id
  std::map<std::size_t, std::size_t> threads_;     // thread numbers of the replay, by the number in the file
  std::map<std::size_t, std::size_t> open_steps_;  // first events, by number
  std::set<std::size_t> known_steps_;
  std::size_t live_bytes_ = 0;
};

}  // namespace

recorded_trace read_trace(std::string const& path) { return reader{path}.read(); }

std::vector<trace_step> steps_in_order(recorded_trace const& trace) {
  std::map<std::size_t, trace_step> by_event;
  for (auto const& [number, step] : trace.steps) by_event.try_emplace(step.first_event, step);
  std::vector<trace_step> steps;
  for (auto const& [first, step] : by_event) {
    if (steps.empty() || first > steps.back().last_event) steps.push_back(step);
  }
  return steps;
}

threaded_replay::threaded_replay(recorded_trace const& trace)
    : of_thread_(std::max<std::size_t>(1, trace.threads)), blocks_(trace.blocks) {
  if (trace.threads > max_threads) {
    throw std::length_error("threaded_replay: the trace has " + std::to_string(trace.threads) +
                            " threads; it starts " + std::to_string(max_threads) + " at most");
  }
  for (trace_event const& event : trace.events) of_thread_[event.thread].push_back(event);
  for (trace_event const& event : trace.left) of_thread_[0].push_back(event);
}

void threaded_replay::run(std::pmr::memory_resource& resource) {
  for (std::atomic<void*>& block : blocks_) block.store(nullptr, std::memory_order_relaxed);
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // of the thread that set `failed`
  const auto play = [&](std::vector<trace_event> const& events) {
    for (trace_event const& event : events) {
      std::atomic<void*>& place = blocks_[event.block];
      if (event.allocates) {
        void* const block = resource.allocate(event.bytes, replay_alignment);
        write_pages(block, event.bytes);
        place.store(block, std::memory_order_release);
      } else {
        void* block = nullptr;
        while ((block = place.load(std::memory_order_acquire)) == nullptr) {
          if (failed.load(std::memory_order_relaxed)) return;
          std::this_thread::yield();
        }
        resource.deallocate(block, event.bytes, replay_alignment);
      }
    }
  };
  const auto or_fail = [&](auto work) noexcept {
    try {
      work();
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  or_fail([&] {
    for (std::size_t i = 1; i < of_thread_.size(); ++i) {
      threads.emplace_back([&, i] { or_fail([&] { play(of_thread_[i]); }); });
    }
    play(of_thread_[0]);
  });
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tidemark::tools
