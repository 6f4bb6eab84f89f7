// SPDX-License-Identifier: Apache-2.0
/// @file `recorded_trace`: allocations and deallocations of a program, read from a file of `trace_log` and
/// replayed. For examples, benchmarks and tests; not part of the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

namespace tidemark::tools {

/// A row of a trace.
struct trace_event {
  bool allocates;        ///< false: a deallocation
  std::uint32_t thread;  ///< numbered from 0 by first appearance
  std::size_t block;     ///< numbered from 0 by allocation
  std::size_t bytes;     ///< of the block, also in its deallocation
};

/// A part of a trace that its program repeats. Events are counted from 0, and both events belong to the step.
struct trace_step {
  std::size_t first_event;
  std::size_t last_event;
};

/// A trace in memory.
struct recorded_trace {
  std::vector<trace_event> events;
  std::size_t blocks = 0;                        ///< allocated in the trace
  std::size_t threads = 0;                       ///< that appear in the trace
  std::size_t peak_live_bytes = 0;               ///< maximum in use at once
  std::vector<trace_event> left;                 ///< deallocations of the blocks live at the end
  std::vector<std::size_t> ids;                  ///< ids in the file, by block number
  std::map<std::size_t, trace_step> steps = {};  ///< steps in the file that have events, by number
};

/// Reads the CSV form of a trace, as docs/traces.md defines it.
/// @throws std::runtime_error with `FILE: reason` or `FILE:LINE: reason` if the file cannot be read or is not
///   a trace.
[[nodiscard]] recorded_trace read_trace(std::string const& path);

/// Returns the steps in order of their events, without steps that begin before an earlier step has ended.
[[nodiscard]] std::vector<trace_step> steps_in_order(recorded_trace const& trace);

/// Alignment of all requests. It is 8, because libstdc++ 12's pool resources align every other block of 24
/// bytes only to 8 if 16 is requested.
inline constexpr std::size_t replay_alignment = 8;

/// Writes a byte of each page of a block, as its user would at least. This shows the cost of a resource that
/// returns memory to the system too soon.
inline void write_pages(void* block, std::size_t bytes) noexcept {
  constexpr std::size_t page_bytes = 4096;
  char volatile* const begin = static_cast<char*>(block);
  for (std::size_t i = 0; i < bytes; i += page_bytes) begin[i] = 1;
  if (bytes != 0) begin[bytes - 1] = 1;  // the last page, if the block begins within a page
}

/// Replays a trace on one thread and writes each page of a block. `blocks` has an entry for each block of the
/// trace. All blocks are free at the end.
template <class Resource>
void replay(recorded_trace const& trace, Resource& resource, std::vector<void*>& blocks) {
  const auto play = [&](trace_event const& event) {
    if (event.allocates) {
      void* const block = resource.allocate(event.bytes, replay_alignment);
      write_pages(block, event.bytes);
      blocks[event.block] = block;
    } else {
      resource.deallocate(blocks[event.block], event.bytes, replay_alignment);
    }
  };
  for (trace_event const& event : trace.events) play(event);
  for (trace_event const& event : trace.left) play(event);
}

/// A trace split by thread.
class threaded_replay {
 public:
  static constexpr std::size_t max_threads = 1024;  ///< maximum number of threads

  /// @throws std::length_error if the trace has more than `max_threads` threads.
  explicit threaded_replay(recorded_trace const& trace);

  /// Replays the trace with its number of threads. A thread that frees another thread's block waits for its
  /// allocation, as in the recording.
  /// @throws any exception of the resource, or std::system_error if a thread cannot be started. Waiting
  ///   threads then stop, and live blocks stay allocated.
  void run(std::pmr::memory_resource& resource);

 private:
  std::vector<std::vector<trace_event>> of_thread_;
  std::vector<std::atomic<void*>> blocks_;
};

}  // namespace tidemark::tools
