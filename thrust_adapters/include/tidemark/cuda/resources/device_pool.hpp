// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pool`: a heap of a device's memory, for one stream and one thread. Owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/detail/device_heap.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>

namespace tidemark {

/// Options of a `device_pool`.
struct device_pool_options {
  /// Stream that uses the blocks; null: the device's default stream. Must outlive the pool.
  gpu::stream_handle stream = nullptr;
  /// Device of the stream; -1: the current device of the thread that makes the pool.
  gpu::device_number device = -1;
  /// Maximum idle bytes; the pool returns the rest, which may wait for the stream. By default the pool keeps
  /// all idle memory until `trim`, or until its next call after another resource of the device found no
  /// memory.
  std::size_t max_cached_bytes = (std::numeric_limits<std::size_t>::max)();
  /// True if graphs use the blocks. Memory then stays mapped at its addresses until `release()` or the end of
  /// the pool, because a launch may use any address of a capture. Idle memory serves other addresses by a
  /// second mapping. Nothing is trimmed, and `max_cached_bytes` has no effect. Chunks of an upstream stay
  /// too. If false, a later allocation may move the memory of blocks that were freed in a capture, and the
  /// graph's launch then faults.
  bool keeps_addresses = false;
  /// Source of chunks; null: the pool maps memory of the device itself, which needs the least memory. Must
  /// not be a resource of another stream. Must outlive the pool. A chunk returns to a `device_arena`,
  /// `device_cache`, `device_pool`, `gpu::async_resource` or `foreign_resource` of the stream at once. It
  /// returns to another resource, such as an adaptor on one of these, after a wait for the stream, or after a
  /// capture of it.
  std::pmr::memory_resource* upstream = nullptr;
  /// Source of the pool's records, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the pool.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Name in messages and statistics; null: the default. Must outlive the pool and its exceptions.
  char const* name = "device_pool";
};

extern template class detail::basic_pool<gpu::detail::device_heap>;

/// A heap of device memory for the work of one stream: blocks of any size, freed in any order.
///
/// Use it by default. `device_arena` is faster for blocks that die together; `device_pools` serves many
/// streams and threads.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// void* x = blocks.allocate(3000);
/// launch(kernel, stream, x);
/// blocks.deallocate(x, 3000);  // later work of `stream` may use the block at once
/// ```
/// Memory is mapped only under blocks, and idle memory moves before new memory is created. docs/cuda.md
/// describes size classes and heap.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats` and of `gpu::detail::device_heap`.
///
/// Complexity: O(1) up to 1 MiB, else O(units of the block); a block that needs memory makes driver calls.
/// Thread-safety: one thread at a time, which level 2 checks; the first thread owns the pool until
/// `release_thread_ownership()`.
class device_pool final : public detail::basic_pool<gpu::detail::device_heap> {
 public:
  /// Makes a pool. @param driver table of driver calls; must outlive this object.
  /// @throws std::invalid_argument if the stream is `gpu::per_thread_stream`; cuda_error or out_of_memory if
  /// the driver does not return the current device, the size of its memory or the granule of mappings.
  explicit device_pool(device_pool_options const& options = {}, gpu::driver& driver = gpu::default_driver());
  /// Waits for the stream and returns all memory, also of live blocks.
  ~device_pool() override = default;

  /// Returns a block behind `event`: all later work of the stream waits for the event. The caller keeps the
  /// event and may destroy it at once. If the stream cannot wait, the calling thread waits; if the thread
  /// cannot wait either, the block stays live, with a warning (`refused_return`). Does nothing for null. @pre
  /// The event was not recorded in a capture, because the wait would end the capture; pass the stream
  /// instead.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, gpu::event_handle event) noexcept;

  /// Returns a block behind the present work of `last_used_on`, a stream of the same device. If one capture
  /// has both streams, the order is captured. If only `last_used_on` is capturing, the block belongs to the
  /// graph and stays live, with a warning. If the streams are in two captures, both captures end
  /// (`gpu::put_behind`). Write a null stream as `gpu::stream_handle{}`: `nullptr` may be an event too, and
  /// does not compile.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align,
                        gpu::stream_handle last_used_on) noexcept;

  /// Calls `clear()`, for a planned arena.
  void release_unused() noexcept override {
    lists().serve_plans();
    clear();
  }

  /// Returns the options in effect, with default device and resources filled in.
  [[nodiscard]] device_pool_options const& options() const noexcept { return options_; }
  /// Returns the source of chunks; null if the pool maps memory itself.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// Returns the number of units moved to other addresses, or mapped a second time. A move took about 60 µs
  /// on an H100.
  [[nodiscard]] std::uint64_t moved_units() const noexcept { return lists().moves(); }
  /// Returns the bytes of the largest block that `allocate` could return now without memory of other
  /// resources; `exhaustion_report::unknown_bytes` with an upstream. Frees empty slabs and makes driver
  /// calls. O(units log(bytes)).
  [[nodiscard]] std::size_t largest_request() noexcept {
    lists().free_empty_slabs();  // they become idle memory, which has a limit
    enforce_limit();
    return lists().largest_request();
  }
  /// Returns the stream that uses the blocks.
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return options_.stream; }

 private:
  struct complete_options : device_pool_options {};
  device_pool(complete_options const& options, gpu::driver& driver);

  gpu::driver* driver_;
  device_pool_options options_;
};

}  // namespace tidemark
