// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pools`: a heap of a device's memory for each stream, for many threads. Owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory_resource>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/cuda/driver/device_budget.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/plan/replay/planned_arena_options.hpp>

namespace tidemark {

/// Options of `device_pools`.
struct device_pools_options {
  /// Device of all streams; -1: the current device of the thread that makes the pools.
  gpu::device_number device = -1;
  /// Maximum idle bytes of each stream's heap, as in `device_pool_options`.
  std::size_t max_cached_bytes = (std::numeric_limits<std::size_t>::max)();
  /// True if each stream's steps are planned, as by a `device_planned_arena` on its heap: see `begin_step`.
  bool plans = false;
  /// Maximum kinds of steps that have a plan on each stream. A new kind replaces the least recently used
  /// kind. At least 1.
  std::size_t max_kinds = planned_arena_options{}.max_kinds;
  /// Name in messages and statistics; null: the default. Must outlive the pools and their exceptions.
  char const* name = "device_pools";
};

/// A snapshot of all streams' heaps. `pending_bytes` counts blocks that wait for other streams. Without a
/// running call, `allocations - deallocations == used_blocks + waiting blocks`, and `held_bytes ==
/// used_bytes + cached_bytes + stranded_bytes`.
struct device_pools_stats {
  char const* name = "";                    ///< name of the pools
  std::uint64_t allocations = 0;            ///< blocks allocated
  std::uint64_t deallocations = 0;          ///< blocks that are free again
  std::uint64_t retries = 0;                ///< requests that were repeated after a return of idle memory
  std::size_t used_blocks = 0;              ///< live blocks, including blocks of graphs
  std::size_t live_blocks = 0;              ///< blocks that were allocated and not deallocated
  std::size_t peak_live_blocks = 0;         ///< most `live_blocks` at a time
  std::size_t requested_bytes = 0;          ///< requested bytes of `used_blocks`
  std::size_t captured_bytes = 0;           ///< part of `requested_bytes` that was deallocated in captures
  std::size_t live_bytes = 0;               ///< requested bytes of `live_blocks`
  std::size_t peak_requested_bytes = 0;     ///< most `live_bytes` at a time
  std::uint64_t total_requested_bytes = 0;  ///< requested bytes of all allocations
  std::size_t pending_bytes = 0;            ///< bytes of deallocated blocks that other streams may still use
  std::size_t used_bytes = 0;      ///< sizes of live and waiting blocks, and of the plans of open steps
  std::size_t stranded_bytes = 0;  ///< free bytes of units with live blocks
  std::size_t cached_bytes = 0;    ///< bytes of idle memory
  std::size_t held_bytes = 0;      ///< bytes of device memory
};

/// One allocator for all streams of a device: each stream has the heap of a `device_pool`.
///
/// ```cpp
/// device_pools memory{{.name = "tensors"}};
/// void* x = memory.allocate(4096, 256, compute);
/// launch(kernel, compute, x);
/// memory.deallocate(x, 4096, 256, compute);      // free for later work of `compute`
/// void* y = memory.allocate(4096, 256, compute);
/// launch(copy, copies, y);                       // behind an event of `compute`
/// memory.deallocate(y, 4096, 256, copies);       // free for `compute` when the copy is done
/// std::pmr::memory_resource* of_copies = memory.on(copies);  // the same for what takes a resource
/// ```
/// A block returns to the heap of the stream of its allocation. docs/cuda.md describes captures, pools of
/// graphs and a full device.
///
/// Invariants: each live block is recorded with its heap; those of `gpu::detail::device_heap`; and
/// `pending_bytes == sum over waiting blocks`, which `check_invariants()` checks.
///
/// Complexity: as `device_pool`, plus O(log(streams)), plus O(1) expected for the record. A request without a
/// free small block queries an event of each stream that blocks wait for. Thread-safety: any thread, except
/// construction and destruction. Each heap has a lock, under which the driver is called, but no callback or
/// handler. `trim`, `forget` and `stats` exclude each other.
class device_pools {
 public:
  /// Makes the pools. @param driver table of driver calls; must outlive this object. @throws
  /// std::invalid_argument if `max_kinds` is 0; otherwise as `device_pool`.
  explicit device_pools(device_pools_options const& options = {},
                        gpu::driver& driver = gpu::default_driver());
  device_pools(device_pools const&) = delete;
  device_pools& operator=(device_pools const&) = delete;
  /// Waits for the streams with heaps and the streams that blocks wait for, except capturing streams. Then
  /// returns all memory, also of live blocks.
  ~device_pools();

  /// Allocates a block for future work on `stream`. @param graphs number of the pool of graphs whose captures
  /// use the block; 0: no graph. @throws as `device_pool::allocate`, and for a new stream as its constructor.
  /// No block is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream,
                               std::uint64_t graphs = 0);
  /// Returns a block that is used by work on `last_used_on`, any stream of the device. If no event can be
  /// recorded, the calling thread waits for the stream; if the wait fails, the block stays live, with a
  /// warning (`refused_return`). A limit of idle memory may make the call wait for the block's stream. Does
  /// nothing for null. Reports a violation (`bad_deallocate`), and does nothing else, if the block is not
  /// live or the size or alignment differs.
  void deallocate(void* block, std::size_t bytes, std::size_t align,
                  gpu::stream_handle last_used_on) noexcept;
  /// Returns a block that is used only by work of its own stream and of the streams passed to `record_use`.
  /// Ignores captures of its own stream, and makes no driver call if no other stream used the block.
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  /// Records that work on `stream` uses the block too. `deallocate` then waits for the work that is on
  /// `stream` when it is called. @pre The stream outlives the block. @return false if no block begins at the
  /// address. @throws std::bad_alloc, with nothing changed.
  bool record_use(void* block, gpu::stream_handle stream);

  /// Returns the memory of one stream as a resource. Its blocks are for work on this stream. A block that is
  /// deallocated through the resource counts as last used on this stream. Valid until `forget`. @throws as
  /// `device_pool`'s constructor.
  [[nodiscard]] std::pmr::memory_resource* on(gpu::stream_handle stream);

  /// Returns the memory of a stream. Call it before the stream is destroyed. Waits for the stream, and for
  /// the streams that blocks wait for. Does nothing for an unknown stream. @pre No other thread uses the
  /// stream's memory.
  /// @throws std::logic_error, with nothing changed, if blocks of the stream are live or in a graph.
  void forget(gpu::stream_handle stream);

  /// Returns idle memory of all streams, after a wait for streams that may still use it. Skips capturing
  /// streams.
  /// @return bytes. O(free ranges + waiting blocks).
  std::size_t trim() noexcept;
  /// Frees the blocks that were deallocated during captures. @pre The graphs of those captures have ended.
  /// @return bytes. O(blocks of graphs).
  std::size_t release_captured() noexcept;
  /// Ends a capture that used a pool of graphs. Memory that is free then serves later captures of the
  /// pool, on any stream. Blocks that were deallocated during captures that have ended become free after
  /// the present work of their streams. A stream that is still capturing keeps its memory of the pool. The
  /// number of another pool is not detected, because a capture without allocations is valid. @pre The
  /// streams of the capture exist. No later launch uses these blocks, unless they are of pools of graphs.
  /// O(heaps + blocks of graphs).
  void end_capture(std::uint64_t graphs) noexcept;
  /// Returns the memory of a pool of graphs. Does nothing for an unknown pool. @pre The graphs have ended,
  /// the device has run their launches, and no capture is open. @return false, with nothing changed, if
  /// blocks of the pool are live.
  bool release_graphs(std::uint64_t graphs) noexcept;

  /// Ends the open step, if any, and begins a step of this kind on all streams, also on those of later
  /// requests. Does nothing without `plans`. @throws std::bad_alloc.
  void begin_step(std::uint64_t kind = 0);
  /// Ends the open step, if any.
  void end_step() noexcept;
  /// Returns the sums of the streams' counts of steps, blocks and misses. O(streams).
  [[nodiscard]] planned_arena_stats step_stats() const noexcept;

  /// Returns a snapshot in numbers. O(streams).
  [[nodiscard]] device_pools_stats stats() const noexcept;
  /// Returns the bytes of the largest block with the default alignment that `allocate` could return now for
  /// the stream without memory of other streams and resources; `exhaustion_report::unknown_bytes` if this is
  /// unknown. Cost and exceptions as `device_pool::largest_request` and `on`.
  [[nodiscard]] std::size_t largest_request(gpu::stream_handle stream);
  /// Returns the number of streams with a heap.
  [[nodiscard]] std::size_t streams() const noexcept;
  /// Returns the options in effect.
  [[nodiscard]] device_pools_options const& options() const noexcept { return options_; }
  /// Reports a violation for each invariant that does not hold. O(free ranges + units).
  void check_invariants() const noexcept;

 private:
  class stream_heap;

  struct live_block {
    stream_heap* of;
    std::size_t bytes, align;
    gpu::stream_handle stream;                // of the allocation
    std::vector<gpu::stream_handle> used_on;  // other streams; capacity for one more
  };
  using place = std::pair<std::uint64_t, gpu::stream_handle>;  // pool of graphs, stream

  [[nodiscard]] stream_heap& of(gpu::stream_handle stream, std::uint64_t graphs = 0);
  void end_block(void* block, std::size_t bytes, std::size_t align,
                 gpu::stream_handle const* last_used_on) noexcept;
  template <class Call>
  void for_each_heap(Call call) const;
  template <class Predicate>
  void remove(Predicate is_gone) noexcept;
  [[nodiscard]] std::size_t sum_of(std::size_t (stream_heap::*call)() noexcept) noexcept;

  gpu::driver* driver_;
  device_pools_options options_;
  mutable detail::fork_safe<>
      maintenance_;                    // during waits, reads and removal of heaps; locked before the others
  mutable detail::fork_safe<> mutex_;  // protects the members below; locked before the locks of heaps
  mutable std::list<stream_heap> heaps_;
  std::map<place, stream_heap*> serving_;  // heap of each stream; of graphs, while a capture is open
  std::unordered_map<void*, live_block> live_;
  std::size_t peak_live_blocks_ = 0, live_bytes_ = 0, peak_live_bytes_ = 0;
  std::uint64_t total_bytes_ = 0, retries_ = 0;
  std::uint64_t removed_blocks_ = 0;   // allocations of removed heaps
  planned_arena_stats removed_steps_;  // counts of removed heaps
  std::optional<std::uint64_t> step_;  // kind of the open step; empty: no open step
  gpu::device_budget::subscription budget_subscription_;
};

}  // namespace tidemark
