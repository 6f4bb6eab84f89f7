// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_memory`: PyTorch's memory for the work of one stream. Owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/device_planned_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "settings.hpp"

namespace tidemark::torch {

/// The stream of a memory, and its trace.
struct memory_place {
  gpu::driver* driver;
  gpu::device_number device;
  gpu::stream_handle stream;
  trace_log* log;    ///< null: no trace
  std::string name;  ///< name in the trace
};

/// Statistics of one stream, with the names of `planned_arena_stats`.
struct stream_counts {
  std::size_t cached_bytes = 0;
  std::uint64_t steps = 0, planned_steps = 0, partly_planned_steps = 0, unplanned_steps = 0;
  std::uint64_t planned_allocations = 0, fallback_allocations = 0, outside_allocations = 0, misses = 0;
};

/// Memory for the work of one stream: a heap, with plans if the settings choose them.
///
/// Thread-safety: one thread at a time, which may be a different thread each time.
class stream_memory {
 public:
  /// Alignment of all blocks.
  static constexpr std::size_t alignment = 256;

  /// Makes the memory of the settings. @throws as the constructors of `device_pool` and
  /// `device_planned_arena`.
  stream_memory(memory_place const& place, settings const& chosen);
  /// Makes memory for captures: it stays at its addresses until the end, because graphs contain them. @throws
  /// as above.
  explicit stream_memory(memory_place const& place);
  stream_memory(stream_memory const&) = delete;
  stream_memory& operator=(stream_memory const&) = delete;
  ~stream_memory() = default;

  /// Allocates a block. @throws out_of_memory; other exceptions of the resource.
  [[nodiscard]] void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes) noexcept;

  /// Ends the open step, if any, and begins the next if steps are planned. @throws std::bad_alloc; no step is
  /// open then.
  void begin_step(std::int64_t kind);
  void end_step() noexcept;
  /// Returns idle memory to the device, after a wait for the stream.
  void collect() noexcept;

  [[nodiscard]] gpu::stream_handle stream() const noexcept { return heap_.stream(); }
  [[nodiscard]] stream_counts counts() const noexcept;

 private:
  void trace(memory_place const& place);

  device_pool heap_;
  std::optional<device_planned_arena> planned_;
  std::optional<device_planned_arena::step> step_;
  std::optional<trace_resource> traced_;
  std::pmr::memory_resource* front_;  // the last of these that exists
};

}  // namespace tidemark::torch
