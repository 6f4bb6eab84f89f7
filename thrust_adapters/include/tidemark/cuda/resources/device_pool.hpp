// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pool`: a heap of a device's memory, for one stream and one thread. Owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/detail/device_heap.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>

namespace tidemark {

/// How a device's pool is made.
struct device_pool_options {
  /// The stream that uses the blocks; null: the device's default stream. Must outlive the pool.
  gpu::stream_handle stream = nullptr;
  /// The stream's device; -1: the current device of the thread that makes the pool.
  gpu::device_number device = -1;
  /// Idle memory is held up to this many bytes; the pool returns the rest, which may wait for the stream. By
  /// default it holds all of it until `trim`, or until its next call after a request of another resource of the
  /// device found no memory.
  std::size_t max_cached_bytes = (std::numeric_limits<std::size_t>::max)();
  /// True if graphs use the blocks: memory then stays where it was mapped until `release()` or the end of the
  /// pool, because a launch may use any address that a capture saw. Nothing is trimmed, and
  /// `max_cached_bytes` has no effect. With an upstream, chunks stay as well.
  bool keeps_addresses = false;
  /// Where chunks of memory come from; null: the pool maps memory of the device itself, which needs the least.
  /// Not a resource of another stream, whose memory is for that stream's work. Must outlive the pool.
  std::pmr::memory_resource* upstream = nullptr;
  /// True if the stream orders the upstream: it gives memory that was returned to it to later work of the
  /// stream only. If false, as for a `gpu::device_resource`, a chunk goes back after a wait for the stream, or
  /// after a capture of it. Empty: true for a `device_arena`, `device_cache`, `device_pool`,
  /// `gpu::async_resource` or `foreign_resource` of the stream, false for anything else, such as an adaptor on
  /// one of these.
  std::optional<bool> upstream_is_ordered = {};  // NOLINT(readability-redundant-member-init)
  /// Where the pool's records come from, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the pool.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// In messages and statistics; null: the default. Must outlive the pool and its exceptions.
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
/// Blocks up to 1 MiB come from size classes (multiples of 256 bytes, from 2 KiB on four for each power of
/// two), larger ones from the smallest free range that fits. Memory is mapped only where blocks lie; memory
/// that lies idle elsewhere is moved before new memory is created (docs/cuda.md).
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats` and of `gpu::detail::device_heap`.
///
/// Complexity: O(1) up to 1 MiB, else O(log(free ranges)); a block that needs memory takes calls to the
/// driver. Thread-safety: one thread at a time, which level 2 checks; the first to use the pool owns it until
/// `release_thread_ownership()`.
class device_pool final : public detail::basic_pool<gpu::detail::device_heap> {
 public:
  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws std::invalid_argument if the stream is `gpu::per_thread_stream`; cuda_error, out_of_memory if the
  /// driver cannot tell the current device, the size of its memory or the unit in which it maps memory.
  explicit device_pool(device_pool_options const& options = {}, gpu::driver& driver = gpu::default_driver());
  /// Returns all memory, also that of live blocks, after a wait for the stream.
  ~device_pool() override = default;

  /// Takes a block back behind `event`: later work of the stream, whatever block it uses, comes behind it.
  /// The event is the caller's, who may destroy it at once. If the stream cannot wait for it, the calling
  /// thread does; if that cannot either, the block stays live: a warning (`refused_return`). Does nothing for
  /// null. @pre the event was not recorded in a capture, which waiting for it would end: there the stream is
  /// given instead.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, gpu::event_handle event) noexcept;

  /// The same behind what is on `last_used_on` now, a stream of the same device. In one capture with the
  /// pool's stream, the order is captured. If only that stream is capturing, the block is in the graph, whose
  /// launches use it: it stays live, a warning; of two captures both end (`gpu::put_behind`). A null stream
  /// needs its type, `gpu::stream_handle{}`: `nullptr` may be an event too, and does not compile.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align,
                        gpu::stream_handle last_used_on) noexcept;

  /// The options in force: with the device and resources that were left out.
  [[nodiscard]] device_pool_options const& options() const noexcept { return options_; }
  /// The resource that chunks come from; null if the pool maps memory itself.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// Units of memory that were moved to other addresses so far. A move took about 60 µs on an H100.
  [[nodiscard]] std::uint64_t moved_units() const noexcept { return lists().moves(); }
  /// The stream whose work uses the blocks.
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return options_.stream; }

 private:
  struct complete_options : device_pool_options {};
  device_pool(complete_options const& options, gpu::driver& driver);

  gpu::driver* driver_;
  device_pool_options options_;
};

}  // namespace tidemark
