// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_memory`: the memory that PyTorch gets for the work of one stream. Owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_planned_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "settings.hpp"

namespace tidemark::torch {

/// Where a stream's memory is, and where it is traced.
struct memory_place {
  gpu::driver* driver;
  gpu::device_number device;
  gpu::stream_handle stream;
  trace_log* log;    ///< null: no trace
  std::string name;  ///< in the trace
};

/// An upstream that returns nothing before its end: a graph has the addresses of its blocks, and nothing
/// tells what of them a replay still uses. A block that comes back serves the next request of its size.
///
/// Complexity: O(log free blocks). Thread-safety: one thread at a time.
class lasting_blocks final : public std::pmr::memory_resource {
 public:
  /// @param upstream must outlive this object.
  explicit lasting_blocks(std::pmr::memory_resource& upstream) noexcept : upstream_{&upstream} {}
  lasting_blocks(lasting_blocks const&) = delete;
  lasting_blocks& operator=(lasting_blocks const&) = delete;
  /// @pre all blocks came back, and no work uses them.
  ~lasting_blocks() override;

 private:
  using free_blocks = std::multimap<std::size_t, void*>;  // by size

  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept override;
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }

  std::pmr::memory_resource* upstream_;
  free_blocks free_;
  // The nodes in which blocks come back, so that this needs no memory.
  std::unordered_map<void*, free_blocks::node_type> lent_;
};

/// What a stream's memory has done. The words are those of all statistics.
struct stream_counts {
  std::size_t cached_bytes = 0;
  std::uint64_t steps = 0, planned_steps = 0, planned_allocations = 0, fallback_allocations = 0;
};

/// Memory for the work of one stream, by a resource of the kind that was chosen, or of a capture.
///
/// Thread-safety: one thread at a time, which may be another one each time.
class stream_memory {
 public:
  /// All blocks are aligned to that.
  static constexpr std::size_t alignment = 256;

  /// As the settings say. @throws as the resource's constructor.
  stream_memory(memory_place const& place, settings const& chosen);
  /// For a capture: a pool of blocks that go back to `upstream` only at the end. @param upstream plain blocks
  /// of the driver, which can be had during a capture; must outlive this object.
  stream_memory(memory_place const& place, std::pmr::memory_resource& upstream);
  stream_memory(stream_memory const&) = delete;
  stream_memory& operator=(stream_memory const&) = delete;
  ~stream_memory() = default;

  /// @throws out_of_memory or what else the resource throws.
  [[nodiscard]] void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes) noexcept;

  /// Ends the open step, if there is one, and begins the next, where steps are planned. @throws
  /// std::bad_alloc; no step is open then.
  void begin_step(std::int64_t kind);
  void end_step() noexcept { step_.reset(); }
  /// Returns what is kept and not used to the device, after a wait for the stream.
  void collect() noexcept;

  [[nodiscard]] gpu::stream_handle stream() const noexcept { return stream_; }
  [[nodiscard]] stream_counts counts() const noexcept;

 private:
  gpu::driver* driver_;
  gpu::stream_handle stream_;
  std::optional<lasting_blocks> lasting_;
  std::optional<device_cache> cache_;
  std::optional<device_pool> pool_;
  std::optional<device_planned_arena> planned_;
  std::optional<device_planned_arena::step> step_;
  std::optional<trace_resource> traced_;
  std::pmr::memory_resource* front_ = nullptr;  // the last of these that is there
};

}  // namespace tidemark::torch
