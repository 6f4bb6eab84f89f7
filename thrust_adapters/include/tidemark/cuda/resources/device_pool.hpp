// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pool`: a device's blocks that are reused by size class, for one thread. The pool owns the memory
/// it took from its upstream.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/detail/device_blocks.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>

namespace tidemark {

/// How a device's pool is made.
struct device_pool_options {
  /// Whose work uses the blocks; null: the device's default stream. Must outlive the pool.
  gpu::stream_handle stream = nullptr;
  /// The stream's device; -1: the one that is current for the thread that makes the pool.
  gpu::device_number device = -1;
  /// Larger requests go to the upstream one by one, and straight back. 16 GiB at most.
  std::size_t largest_pooled_bytes = 32 * MiB;
  /// Blocks are cut from slabs of about so many bytes, or of one block where that is larger: what the driver
  /// takes from the system at once, so that smaller ones spare nothing.
  std::size_t slab_bytes = 2 * MiB;
  /// Free blocks are held up to this many bytes; beyond, memory goes back to the upstream.
  std::size_t max_cached_bytes = 1 * GiB;
  /// Where memory comes from; null: a `gpu::memory_pool` of the pool's own, in the order of the stream. Not
  /// a resource of another stream, whose memory is for that stream's work. Must outlive the pool.
  std::pmr::memory_resource* upstream = nullptr;
  /// Whether the stream orders the upstream: it gives what was returned to it to later work of the stream
  /// only. If not, as a `gpu::device_resource`, it gets each slab and large block after a wait for the
  /// stream, or after a capture of it. Left empty it is found out: a `device_arena`, `device_cache`,
  /// `device_pool`, `gpu::async_resource` or `foreign_resource` of the stream is ordered, anything else is
  /// not: say so of an adaptor on one.
  std::optional<bool> upstream_is_ordered = {};  // NOLINT(readability-redundant-member-init)
  /// Where the pool's records come from, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the pool.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// In messages and statistics; null: the default. Must outlive the pool and its exceptions.
  char const* name = "device_pool";
};

extern template class detail::basic_pool<gpu::detail::device_blocks>;

/// Memory of a device for blocks that are freed in any order: a freed block comes back to the next request of
/// its size class.
///
/// Use it where one thread makes many blocks of many sizes: a call is a few nanoseconds. Where they repeat a
/// few sizes exactly `device_cache` wastes nothing and serves any thread and other streams; for blocks that
/// die together a `device_arena` is faster still. The pool is `pool` for memory that the host must not touch:
/// its free lists lie beside the memory, never in it, and so it does for any resource's memory.
///
/// ```cpp
/// device_pool blocks{{.stream = stream}};
/// void* x = blocks.allocate(3000);
/// launch(kernel, stream, x);
/// blocks.deallocate(x, 3000);  // the next allocate(3000) gives the same block to later work of `stream`
/// device_pool of_arena{{.stream = stream, .upstream = &step}};  // slabs of a `device_arena`
/// ```
/// One pool, one stream: a block goes to work that is put on the pool's stream, and so may be allocated again
/// as soon as it was deallocated, because later work comes behind it. Work of another stream that uses a
/// block is put behind an event or named by its stream, and `deallocate_after` lets the pool's stream wait
/// for that.
///
/// A request takes the last block of its class's list (a hit). If the list is empty, a slab comes from the
/// upstream (a miss). Classes are multiples of 256 bytes, from 2 KiB on four for each power of two. Requests
/// beyond the largest class, or aligned to more than 256 bytes, go to the upstream one by one (a miss each)
/// and straight back. Free blocks are held up to `max_cached_bytes`; beyond, slabs whose blocks are all free
/// go back, and where that is not enough free blocks whose slab holds live ones are set aside. Where the
/// upstream throws std::bad_alloc the free slabs go back, and it is called once more; if it is the pool's
/// own, after a wait for the stream. Level 1 too reports a deallocation that makes more blocks of a class
/// free than there are, or of a large block that is not the pool's, and then does nothing.
///
/// In a capture the pool makes no call to the driver as long as it hits. A miss then maps memory to addresses
/// of its own if the upstream is the pool's own; it throws out_of_memory if the driver does not map memory
/// during captures. The pool may use a block again as soon as it was deallocated, also while a graph may
/// still use it: memory of a graph comes from a `graph_arena`.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats`, and for each class
/// `blocks in slabs == live + listed + stranded`, every free block being one of them.
///
/// Complexity: allocate and deallocate O(1); misses O(blocks of the slab), trims O(free blocks * log(slabs)).
/// The limit trims once in `max_cached_bytes / 2` bytes of deallocations at most, and then each time half of
/// what lived at the last trim is gone. Records are allocated only where slabs or large blocks are.
/// Thread-safety: one thread at a time, which level 2 checks; the first to use the pool owns it until
/// `release_thread_ownership()`.
class device_pool final : public detail::basic_pool<gpu::detail::device_blocks> {
 public:
  /// As `options` say. @param driver the calls to use; must outlive this object.
  /// @throws std::invalid_argument if `largest_pooled_bytes` is too much, or the stream is
  /// `gpu::per_thread_stream`; cuda_error if the driver cannot tell which device is current or make a pool,
  /// out_of_memory if that is for want of memory.
  explicit device_pool(device_pool_options const& options = {}, gpu::driver& driver = gpu::default_driver());
  /// Returns everything to the upstream, also live blocks.
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

  /// The options that hold: device, resources and the largest class as they were found out.
  [[nodiscard]] device_pool_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The stream whose work uses the blocks.
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return options_.stream; }

 private:
  struct complete_options : device_pool_options {};
  device_pool(complete_options const& options, gpu::driver& driver);

  gpu::driver* driver_;
  device_pool_options options_;
};

}  // namespace tidemark
