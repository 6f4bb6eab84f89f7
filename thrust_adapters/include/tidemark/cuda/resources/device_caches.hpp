// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_caches`: one allocator for the streams of a device, a `device_cache` for each. Owns the caches.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <unordered_map>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>

namespace tidemark {

/// An allocator that many streams share: each request names its stream, and a block may be deallocated on
/// another one than it was allocated on.
///
/// ```cpp
/// device_caches memory{{.name = "tensors"}};
/// void* x = memory.allocate(4096, 256, compute);
/// launch(kernel, compute, x);
/// memory.deallocate(x, 4096, 256, compute);      // ready for `compute`
/// void* y = memory.allocate(4096, 256, compute);
/// launch(copy, copies, y);                       // behind an event of `compute`
/// memory.deallocate(y, 4096, 256, copies);       // ready for `compute` when the copy is seen to be done
/// std::pmr::memory_resource* of_copies = memory.on(copies);  // the same for what takes a resource
/// ```
/// A block goes back to the stream that it was allocated for, as in PyTorch's allocator: what one stream
/// frees is not given to another, because that would have to wait. Each stream's cache may keep
/// `max_cached_bytes`. What is kept for idle streams comes back when the device is full
/// (`gpu::device_budget`), or by `collect`. A stream that is captured when it gives a block back keeps it
/// live, as in `device_cache`, until `release_captured`.
///
/// Invariant: each block that was not deallocated is recorded with its cache.
/// Complexity: as `device_cache`, and O(1) expected under a lock for the record. Thread-safety: any thread,
/// but for construction and destruction; `forget` needs that nobody uses that stream's memory.
class device_caches {
 public:
  /// @param each how the caches are made; their `stream` is each one's own, and the limits are for each. An
  /// upstream is that of all, and must not be a resource of one stream.
  /// @param driver the calls to use; must outlive this object.
  /// @throws as `device_cache`.
  explicit device_caches(device_cache_options const& each = {}, gpu::driver& driver = gpu::default_driver());
  device_caches(device_caches const&) = delete;
  device_caches& operator=(device_caches const&) = delete;
  ~device_caches();

  /// A block for work that is put on `stream` from now on. @throws as `device_cache::allocate`, and, for a
  /// stream that is new, its constructor; nothing has changed then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream);
  /// Takes back a block that work on `last_used_on` uses, of whatever stream it is. Null: does nothing. A
  /// block that is not live here: a violation (`bad_deallocate`), with nothing done.
  void deallocate(void* block, std::size_t bytes, std::size_t align,
                  gpu::stream_handle last_used_on) noexcept;

  /// The memory of one stream as a resource: what it allocates is for that stream, and what it deallocates,
  /// of whatever stream, was last used there. It lives until `forget`. @throws as `device_cache`.
  [[nodiscard]] std::pmr::memory_resource* on(gpu::stream_handle stream);

  /// The cache of a stream is no more: call it before the stream is destroyed. What it keeps goes to its
  /// upstream.
  /// @throws std::logic_error if blocks of it are live, or of a graph, with nothing changed. Does nothing for
  /// a stream that is not known.
  void forget(gpu::stream_handle stream);

  /// `device_cache::collect` of all. @return bytes returned.
  std::size_t collect(bool force = false) noexcept;
  /// `device_cache::release_captured` of all. @return bytes.
  std::size_t release_captured() noexcept;

  /// Of all caches together; peaks are sums of peaks. O(streams).
  [[nodiscard]] reuse_cache_stats stats() const noexcept;
  /// How many streams have a cache.
  [[nodiscard]] std::size_t streams() const noexcept;
  /// The options that hold for each cache, with the device found out.
  [[nodiscard]] device_cache_options const& options() const noexcept { return options_; }

 private:
  class stream_cache;

  [[nodiscard]] stream_cache& of(gpu::stream_handle stream);
  template <class Call>
  void for_each_cache(Call call) const noexcept;

  gpu::driver* driver_;
  device_cache_options options_;
  mutable detail::fork_safe<> mutex_;  // for what follows; the driver is not called under it
  std::map<gpu::stream_handle, std::shared_ptr<stream_cache>> caches_;
  std::pmr::unordered_map<void*, stream_cache*> owners_;  // of live blocks
};

}  // namespace tidemark
