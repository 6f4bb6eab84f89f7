// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pools`: a heap of a device's memory for each stream, for many threads. Owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <memory_resource>
#include <unordered_map>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/cuda/driver/device_budget.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark {

/// How the pools of a device's streams are made.
struct device_pools_options {
  /// The device of all streams; -1: the current device of the thread that makes the pools.
  gpu::device_number device = -1;
  /// Each stream's heap holds idle memory up to this many bytes, as in `device_pool_options`.
  std::size_t max_cached_bytes = (std::numeric_limits<std::size_t>::max)();
  /// In messages and statistics; null: the default. Must outlive the pools and their exceptions.
  char const* name = "device_pools";
};

/// A snapshot of all streams' heaps. Blocks that wait for other streams are those of `pending_bytes`;
/// whenever no call is going on, `allocations - deallocations == used_blocks + blocks that wait`.
struct device_pools_stats {
  char const* name = "";            ///< the pools' name
  std::uint64_t allocations = 0;    ///< blocks allocated
  std::uint64_t deallocations = 0;  ///< blocks that are free again
  std::size_t used_blocks = 0;      ///< live blocks, also those that a graph uses
  std::size_t requested_bytes = 0;  ///< of live blocks
  std::size_t pending_bytes = 0;    ///< of deallocated blocks that other streams may still use
  std::size_t cached_bytes = 0;     ///< idle memory
  std::size_t held_bytes = 0;       ///< memory of the device
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
/// A block returns to the heap of the stream that it was allocated for. docs/cuda.md describes captures and a
/// full device.
///
/// Invariants: each live block is recorded with its heap; those of `gpu::detail::device_heap`, and
/// `pending_bytes == sum over blocks that wait`, which `check_invariants()` checks.
/// Complexity: that of `device_pool`, O(log(streams)), and O(1) expected for the record. A request that finds
/// no small block at once queries an event for each stream that blocks wait for.
/// Thread-safety: any thread, except construction and destruction. Each heap has a lock, under which the
/// driver is called; no callback and no handler is. `trim`, `forget` and `stats` wait for each other.
class device_pools {
 public:
  /// As `options` say. @param driver the calls to use; must outlive this object. @throws as `device_pool`.
  explicit device_pools(device_pools_options const& options = {},
                        gpu::driver& driver = gpu::default_driver());
  device_pools(device_pools const&) = delete;
  device_pools& operator=(device_pools const&) = delete;
  /// Returns all memory, also that of live blocks, after a wait for the streams that have a heap and for
  /// those that blocks wait for, except streams that are capturing.
  ~device_pools();

  /// A block for work that is put on `stream` from now on. @throws as `device_pool::allocate`, and, for a
  /// stream that is new, as its constructor. No block is allocated then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream);
  /// Takes back a block that work on `last_used_on` uses, which may be any stream of the device. If no event
  /// can be recorded there, the calling thread waits for that stream; if that fails, the block stays live: a
  /// warning (`refused_return`). A limit of idle memory may make it wait for the block's stream. Null: does
  /// nothing. A block that is not live, or was allocated with another size or alignment: a violation
  /// (`bad_deallocate`), with nothing done.
  void deallocate(void* block, std::size_t bytes, std::size_t align,
                  gpu::stream_handle last_used_on) noexcept;

  /// The memory of one stream as a resource: what it allocates is for that stream, and what it deallocates,
  /// of whatever stream, was last used there. It lives until `forget`. @throws as `device_pool`'s
  /// constructor.
  [[nodiscard]] std::pmr::memory_resource* on(gpu::stream_handle stream);

  /// Returns the memory of a stream. Call it before the stream is destroyed. It waits for the stream, and for
  /// those that blocks wait for. Does nothing for a stream that is not known. @pre no other thread uses that
  /// stream's memory. @throws std::logic_error if blocks of it are live, or in a graph, with nothing changed.
  void forget(gpu::stream_handle stream);

  /// Returns idle memory of all streams, after a wait for those that may still use it. Streams that are
  /// capturing keep theirs. @return bytes. O(free ranges + blocks that wait).
  std::size_t trim() noexcept;
  /// Frees the blocks that were deallocated during captures. @pre the graphs of those captures have ended.
  /// @return bytes. O(blocks of graphs).
  std::size_t release_captured() noexcept;

  /// A snapshot in numbers. O(streams).
  [[nodiscard]] device_pools_stats stats() const noexcept;
  /// How many streams have a heap.
  [[nodiscard]] std::size_t streams() const noexcept;
  /// The options in force.
  [[nodiscard]] device_pools_options const& options() const noexcept { return options_; }
  /// Reports a violation for each invariant that does not hold. O(free ranges + units).
  void check_invariants() const noexcept;

 private:
  class stream_heap;

  struct live_block {
    stream_heap* of;
    std::size_t bytes, align;
  };

  [[nodiscard]] stream_heap& of(gpu::stream_handle stream);
  template <class Call>
  void for_each_heap(Call call) const noexcept;
  [[nodiscard]] std::size_t sum_of(std::size_t (stream_heap::*call)() noexcept) noexcept;

  gpu::driver* driver_;
  device_pools_options options_;
  mutable detail::fork_safe<>
      maintenance_;                    // while heaps are waited for, read or removed; taken before the others
  mutable detail::fork_safe<> mutex_;  // for what follows; no other lock is taken under it
  std::map<gpu::stream_handle, std::unique_ptr<stream_heap>> heaps_;
  std::unordered_map<void*, live_block> live_;
  gpu::device_budget::subscription gives_back_;
};

}  // namespace tidemark
