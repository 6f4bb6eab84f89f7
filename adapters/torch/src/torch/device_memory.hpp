// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_memory`: PyTorch's memory of one device. Owns it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/device_pools.hpp>
#include <tidemark/telemetry/trace_log.hpp>
#include <tidemark/telemetry/trace_resource.hpp>

#include "segment_memory.hpp"
#include "settings.hpp"

namespace tidemark::torch {

/// PyTorch's identifier of a capture pool: `c10::MempoolId_t`.
using pool_id = std::pair<unsigned long long, unsigned long long>;
/// PyTorch's predicate: true if the work of a stream belongs to a capture.
using stream_filter = std::function<bool(gpu::stream_handle)>;

/// The memory of one device: `device_pools`, with a pool of graphs for each capture pool of PyTorch.
///
/// A block that other streams use (`record_stream`) is freed behind events of these streams, recorded when
/// PyTorch frees the block. A capturing stream gets no event, because the graph would contain it: the block
/// then waits for the end of the capture.
///
/// Complexity: that of `device_pools`, plus a mutex while a capture pool is open or a trace is written.
/// Thread-safety: any thread, except the destructor.
class device_memory {
 public:
  /// Alignment of all blocks.
  static constexpr std::size_t alignment = 256;

  /// @param log null: no trace. @throws the exceptions of the driver.
  device_memory(gpu::device_number device, settings const& chosen, trace_log* log, gpu::driver& driver);
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;
  /// Waits for the device. @pre All blocks were deallocated, and no stream captures.
  ~device_memory();

  /// Allocates a block for work on `stream`, from an open capture pool if the pool accepts the stream.
  /// @throws out_of_memory after a return of all idle memory of the device and a second try; exceptions of
  /// the driver or a filter. Nothing is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, gpu::stream_handle stream);
  /// Frees a block. Reports a violation, and does nothing, if no block of this size begins at the address.
  void deallocate(void* block, std::size_t bytes) noexcept;
  /// Records that work on `stream` also uses the block. @return false if no block begins at the address.
  /// @throws std::bad_alloc; nothing has changed then.
  bool record_stream(void* block, gpu::stream_handle stream) { return memory_.record_use(block, stream); }

  /// Makes streams that the filter accepts allocate from this pool from now on; the most recent pool wins.
  /// @throws std::runtime_error if the pool is open; std::bad_alloc.
  void begin_pool(pool_id id, stream_filter filter);
  /// Ends `begin_pool`. @throws std::runtime_error if the pool is not open.
  void end_pool(pool_id id);
  /// Cancels one `begin_pool` use of the pool. The memory of a pool without uses is returned after its blocks
  /// were freed and the device was awaited. @return false if there is no such pool.
  bool release_pool(pool_id id) noexcept;

  /// Begins a step on the memory of all streams, including later ones, and ends the previous step.
  void begin_step(std::int64_t kind) { memory_.begin_step(static_cast<std::uint64_t>(kind)); }
  void end_step() noexcept { memory_.end_step(); }

  /// Returns all idle memory to the device, after a wait for the device. While a capture pool is open,
  /// returns only memory that needs no wait.
  void collect() noexcept;
  /// Limits held memory to this fraction of the device from now on. @throws cuda_error.
  void set_memory_fraction(double fraction);
  /// Returns counts of allocations and held memory as a JSON object.
  [[nodiscard]] std::string statistics() const;

  /// Returns the memory of a `torch.cuda.MemPool`.
  [[nodiscard]] segment_memory& segments() noexcept { return segments_; }

 private:
  struct capture_pool {
    std::uint64_t number;  // pool of graphs
    std::size_t uses = 0;  // begun and not released
  };
  struct recording {
    pool_id id;
    stream_filter takes;
  };
  /// The memory as a resource for a trace: requests are for `stream` and `graphs`.
  class traced_memory final : public std::pmr::memory_resource {
   public:
    explicit traced_memory(device_pools& memory) noexcept : memory_{memory} {}
    gpu::stream_handle stream = nullptr;
    std::uint64_t graphs = 0;

   private:
    void* do_allocate(std::size_t bytes, std::size_t align) override {
      return memory_.allocate(bytes, align, stream, graphs);
    }
    void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
      memory_.deallocate(block, bytes, align);
    }
    [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
      return this == &other;
    }
    device_pools& memory_;
  };

  [[nodiscard]] std::uint64_t graphs_of(gpu::stream_handle stream) const;
  [[nodiscard]] void* allocate_from(std::uint64_t graphs, std::size_t bytes, gpu::stream_handle stream);
  [[nodiscard]] bool release_graphs() noexcept;

  gpu::driver* driver_;
  gpu::device_number device_;
  settings chosen_;
  device_pools memory_;
  segment_memory segments_;

  mutable std::mutex mutex_;  // protects the pools below
  std::map<pool_id, capture_pool> pools_;
  std::vector<recording> recordings_;  // open pools, the most recent last
  std::uint64_t last_number_ = 0;
  std::atomic<std::size_t> open_pools_ = 0;
  std::atomic<std::uint64_t> refused_ = 0, retries_ = 0;

  std::mutex trace_mutex_;  // protects the resources of the trace
  traced_memory untraced_{memory_};
  std::optional<trace_resource> traced_;  // empty: no trace
};

}  // namespace tidemark::torch
