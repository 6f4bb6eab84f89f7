// SPDX-License-Identifier: Apache-2.0
/// @file `recorded_trace`: what a program allocated and freed, read from a file of `trace_log`, and played
/// again. For examples, benchmarks and tests; no part of the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

namespace tidemark::tools {

/// One row of a trace.
struct trace_event {
  bool allocates;        ///< otherwise it frees
  std::uint32_t thread;  ///< numbered from 0 by first appearance
  std::size_t block;     ///< numbered from 0 by allocation
  std::size_t bytes;     ///< of the block, also where it is freed
};

/// A trace in memory.
struct recorded_trace {
  std::vector<trace_event> events;
  std::size_t blocks = 0;           ///< allocated in it
  std::size_t threads = 0;          ///< that appear in it
  std::size_t peak_live_bytes = 0;  ///< most that were in use at once
  std::vector<trace_event> left;    ///< frees of the blocks that are live at its end
  std::vector<std::size_t> ids;     ///< of the blocks in the file, by their number
};

/// Reads the CSV form of a trace, as docs/traces.md describes it.
/// @throws std::runtime_error whose text is `FILE: reason` or `FILE:LINE: reason` if it cannot be read, or is
/// none.
[[nodiscard]] recorded_trace read_trace(std::string const& path);

/// A part of a trace that its program did again and again. Events are counted from 0, and both are of the
/// step.
struct trace_step {
  std::size_t first_event;
  std::size_t last_event;
};

/// Reads the steps of a trace, in the form that docs/traces.md describes. They are in order and do not
/// overlap.
/// @throws std::runtime_error as `read_trace` does, also if they are no steps of that trace.
[[nodiscard]] std::vector<trace_step> read_steps(std::string const& path, recorded_trace const& trace);

/// What blocks are asked to be aligned to: libstdc++ 12's pool resources serve 24 bytes aligned to 16 from
/// blocks of 24 bytes, so that every other one is aligned to 8 only.
inline constexpr std::size_t replay_alignment = 8;

/// Writes a byte of each page of a block, as its user would at least: a resource that gives memory back to the
/// system too soon takes it again page by page.
inline void write_pages(void* block, std::size_t bytes) noexcept {
  constexpr std::size_t page_bytes = 4096;
  char volatile* const begin = static_cast<char*>(block);
  for (std::size_t i = 0; i < bytes; i += page_bytes) begin[i] = 1;
  if (bytes != 0) begin[bytes - 1] = 1;  // a page more, where the block begins late in one
}

/// Plays a trace on one thread. `blocks` has an entry for each block of the trace; all are free at the end. Each
/// page of a block is written.
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

/// A trace cut into what each of its threads does.
class threaded_replay {
 public:
  static constexpr std::size_t max_threads = 1024;  ///< most that it starts

  /// @throws std::length_error if the trace has more than `max_threads` threads.
  explicit threaded_replay(recorded_trace const& trace);

  /// Plays it with as many threads as it has. A thread that frees another's block waits until it is there, as
  /// it did when the trace was recorded.
  /// @throws what the resource throws, or std::system_error if a thread cannot be started. No thread waits
  /// for a block that does not come then, and what is live stays so.
  void run(std::pmr::memory_resource& resource);

 private:
  std::vector<std::vector<trace_event>> of_thread_;
  std::vector<std::atomic<void*>> blocks_;
};

}  // namespace tidemark::tools
