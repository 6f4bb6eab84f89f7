// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_memory`: all memory that PyTorch gets of one device. Owns it.
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

/// PyTorch's name of a pool of captures: `c10::MempoolId_t`.
using pool_id = std::pair<unsigned long long, unsigned long long>;
/// Whether the work of a stream belongs to a capture: PyTorch's.
using stream_filter = std::function<bool(gpu::stream_handle)>;

/// The memory of one device: each stream has its own, and each pool of captures.
///
/// A block that other streams use (`record_stream`) is freed behind events of these streams, recorded when
/// PyTorch frees it. An event is not recorded on a stream that is capturing, because it would become part of
/// the graph: that block waits for the end of the capture.
///
/// Memory of a pool of captures stays with the pool and at its addresses: freed blocks serve later requests of
/// the pool. It goes back after the pool was released, its blocks were freed, and the device was waited for.
///
/// Invariant: each block is in `blocks_` from its allocation until it goes back to its stream's memory.
/// Complexity: that of the resource and of a hash table, and for each block that waits a comparison; for each
/// stream that blocks wait for one query. Thread-safety: any thread, but for the destructor.
class device_memory {
 public:
  /// @param log null: no trace. @throws what the driver throws.
  device_memory(gpu::device_number device, settings const& chosen, trace_log* log, gpu::driver& driver);
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;
  /// Waits for the device. @pre all blocks were deallocated, and nothing captures.
  ~device_memory();

  /// A block for work on `stream`; of a pool of captures, if one that is open takes the stream.
  /// @throws out_of_memory after all that is kept of this device was returned and a second
  /// try; what the driver or a filter throws. Nothing is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, gpu::stream_handle stream);
  /// @return false if no block begins there; nothing happens then.
  bool deallocate(void* block) noexcept;
  /// Work on `stream` uses the block, too. @return false if no block begins there.
  /// @throws cuda_error, std::bad_alloc; nothing has changed then.
  bool record_stream(void* block, gpu::stream_handle stream);

  /// From here on streams that the filter takes get memory of this pool: the last one begun, if several take
  /// it. @throws std::runtime_error if the pool is open, std::bad_alloc.
  void begin_pool(pool_id id, stream_filter filter);
  /// @throws std::runtime_error if the pool is not open.
  void end_pool(pool_id id);
  /// One `begin_pool` less needs the pool. @return false if there is no such pool.
  bool release_pool(pool_id id) noexcept;

  /// Begins a step on the memory of all streams, and of those that come; ends the one before.
  void begin_step(std::int64_t kind);
  void end_step() noexcept;

  /// Returns all memory that is kept and not used to the device, after a wait for it. While a pool of
  /// captures is open, only what can be had without that wait.
  void collect() noexcept;
  /// From here on no more than this part of the device may be held. @throws cuda_error.
  void set_memory_fraction(double fraction);
  /// What was allocated and is kept, as a JSON object.
  [[nodiscard]] std::string statistics() const;

  /// What a `torch.cuda.MemPool` gets: see there.
  [[nodiscard]] segment_memory& segments() noexcept { return segments_; }

 private:
  struct capture_pool {
    std::size_t uses = 0;         // begun and not released
    std::size_t live_blocks = 0;  // allocated of it
    std::map<gpu::stream_handle, stream_memory> streams;
  };
  struct stream_use {
    gpu::stream_handle stream;
    gpu::event event;  // made before it is needed: to free must not fail
    bool is_recorded = false;
  };
  struct live_block {
    stream_memory* of;
    capture_pool* pool;  // null: of none
    std::size_t bytes;
    std::vector<stream_use> uses;  // of other streams
    bool is_freed = false;         // and waits for them
  };
  struct recording {
    pool_id id;
    stream_filter takes;
  };

  [[nodiscard]] memory_place place_of(gpu::stream_handle stream, char const* what) const;
  [[nodiscard]] std::pair<stream_memory*, capture_pool*> memory_for(gpu::stream_handle stream);
  [[nodiscard]] void* allocate_from(stream_memory& memory, capture_pool* pool, std::size_t bytes);
  void give_back(void* block, live_block const& ending) noexcept;
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

  mutable std::mutex mutex_;  // for what follows; the driver is called under it
  std::map<gpu::stream_handle, stream_memory> streams_;
  std::map<pool_id, capture_pool> pools_;
  std::vector<recording> recordings_;  // the pools that are open, the last begun last
  std::unordered_map<void*, live_block> blocks_;
  std::vector<void*> waiting_;            // freed, and used by other streams as yet; in order
  std::vector<gpu::stream_handle> busy_;  // of one look at what waits
  std::size_t shared_blocks_ = 0;         // that have uses: there is room for them in waiting_
  std::size_t shared_uses_ = 0;           // of all blocks: there is room for them in busy_
  std::optional<std::int64_t> step_;      // the kind of the open step; empty: none is open

  std::uint64_t allocations_ = 0, deallocations_ = 0, refused_ = 0;
  std::size_t used_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace tidemark::torch
