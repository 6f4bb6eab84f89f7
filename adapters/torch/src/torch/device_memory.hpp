// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_memory`: PyTorch's memory of one device. Owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "segment_memory.hpp"
#include "settings.hpp"
#include "stream_memory.hpp"

namespace tidemark::torch {

/// PyTorch's identifier of a capture pool: `c10::MempoolId_t`.
using pool_id = std::pair<unsigned long long, unsigned long long>;
/// PyTorch's predicate: true if the work of a stream belongs to a capture.
using stream_filter = std::function<bool(gpu::stream_handle)>;

/// The memory of one device: separate memory for each stream and for each capture pool.
///
/// A block that other streams use (`record_stream`) is freed behind events of these streams, recorded when
/// PyTorch frees the block. A capturing stream gets no event, because the graph would contain it: the block
/// then waits for the end of the capture.
///
/// Memory of a capture pool stays at its addresses and serves later requests of the pool.
///
/// Invariant: each block is in `blocks_` from its allocation until its return to its stream's memory.
/// Complexity: as the resource, plus O(1) for a hash table, O(1) for each waiting block, and one query for
/// each stream that blocks wait for. Thread-safety: any thread, except the destructor.
class device_memory {
 public:
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
  /// Frees a block. @return false, with nothing done, if no block begins at the address.
  bool deallocate(void* block) noexcept;
  /// Records that work on `stream` also uses the block. @return false if no block begins at the address.
  /// @throws cuda_error, std::bad_alloc; nothing has changed then.
  bool record_stream(void* block, gpu::stream_handle stream);

  /// Makes streams that the filter accepts allocate from this pool from now on; the most recent pool wins.
  /// @throws std::runtime_error if the pool is open; std::bad_alloc.
  void begin_pool(pool_id id, stream_filter filter);
  /// Ends `begin_pool`. @throws std::runtime_error if the pool is not open.
  void end_pool(pool_id id);
  /// Cancels one `begin_pool` use of the pool. The memory of a pool without uses is returned after its blocks
  /// were freed and the device was awaited. @return false if there is no such pool.
  bool release_pool(pool_id id) noexcept;

  /// Begins a step on the memory of all streams, including later ones, and ends the previous step.
  void begin_step(std::int64_t kind);
  void end_step() noexcept;

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
    std::size_t uses = 0;         // begun and not released
    std::size_t live_blocks = 0;  // blocks allocated from it
    std::map<gpu::stream_handle, stream_memory> streams;
  };
  struct stream_use {
    gpu::stream_handle stream;
    gpu::event event;  // made in advance, because a free must not fail
    bool is_recorded = false;
  };
  struct live_block {
    stream_memory* of;
    capture_pool* pool;  // null: no pool
    std::size_t bytes;
    std::vector<stream_use> uses;  // uses by other streams
    bool is_freed = false;         // freed, and waits for other streams
  };
  struct recording {
    pool_id id;
    stream_filter takes;
  };

  [[nodiscard]] memory_place place_of(gpu::stream_handle stream, char const* what) const;
  [[nodiscard]] std::pair<stream_memory*, capture_pool*> memory_for(gpu::stream_handle stream);
  [[nodiscard]] void* allocate_from(stream_memory& memory, capture_pool* pool, std::size_t bytes);
  void end_block(void* block, live_block const& ending) noexcept;
  [[nodiscard]] bool is_unused(live_block& block, bool waits) noexcept;
  [[nodiscard]] bool try_record(stream_use& use) noexcept;
  void retire(bool waits) noexcept;
  void retire_all() noexcept;
  void collect_streams(bool is_idle) noexcept;
  [[nodiscard]] bool holds_released_pools() const noexcept;
  [[nodiscard]] bool wait_for_device() noexcept;

  gpu::driver* driver_;
  gpu::device_number device_;
  settings chosen_;
  trace_log* log_;
  segment_memory segments_;

  mutable std::mutex mutex_;  // protects the members below; the driver is called under it
  std::map<gpu::stream_handle, stream_memory> streams_;
  std::map<pool_id, capture_pool> pools_;
  std::vector<recording> recordings_;  // open pools, the most recent last
  std::unordered_map<void*, live_block> blocks_;
  std::vector<void*> waiting_;            // freed blocks in use by other streams, in order
  std::vector<gpu::stream_handle> busy_;  // working memory of `is_unused`
  std::size_t shared_blocks_ = 0;         // blocks with uses; waiting_ has capacity for them
  std::size_t shared_uses_ = 0;           // uses of all blocks; busy_ has capacity for them
  std::optional<std::int64_t> step_;      // kind of the open step; empty: no open step

  std::uint64_t allocations_ = 0, deallocations_ = 0, refused_ = 0;
  std::size_t used_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace tidemark::torch
