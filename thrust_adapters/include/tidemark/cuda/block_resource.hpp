// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::device_resource`, `cuda::pinned_resource`, `cuda::managed_resource`: one block of the driver for
/// each allocation. Own no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>

#include <tidemark/cuda/block_kind.hpp>
#include <tidemark/cuda/detail/over_aligned.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/usage_counter.hpp>
#include <tidemark/resource_stats.hpp>

namespace tidemark::cuda {

/// How a `block_resource` is made.
struct block_resource_options {
  /// The device; -1: the one that is current for the thread that makes the resource.
  device_number device = -1;
  /// Name in messages and statistics; null: that of the kind. Must outlive the resource and its exceptions.
  char const* name = nullptr;
};

/// A `std::pmr::memory_resource` whose blocks are the driver's own: what pools and caches for devices take
/// their memory from. A call costs what the driver's costs, which is much, and freeing waits for the device:
/// put a pool, a cache or an arena on it where that counts.
///
/// ```cpp
/// cuda::pinned_resource pinned;
/// std::pmr::vector<float> staged(n, &pinned);           // copies from it go on beside the host
/// cuda::device_resource memory;
/// reuse_cache tensors{{.cached_bytes_max = 1 * GiB, .upstream = &memory}};
/// ```
/// Memory is uninitialised. The device's own may not be touched by the host: no containers there.
///
/// Invariants: those of `resource_stats`. Complexity: O(log live blocks) besides the driver. Thread-safety:
/// any thread; the driver is called without the lock that guards the records. The device is made current for
/// the call.
/// @tparam Kind what kind of memory.
template <block_kind Kind>
class block_resource final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = driver_block_alignment;

  /// @param driver the calls to use; must outlive this object.
  /// @throws cuda_error, or out_of_memory, if the driver cannot tell the device.
  explicit block_resource(block_resource_options const& options = {}, driver& driver = default_driver());
  /// The same with the default options.
  explicit block_resource(driver& driver) : block_resource{block_resource_options{}, driver} {}
  block_resource(block_resource const&) = delete;
  block_resource& operator=(block_resource const&) = delete;
  /// Blocks still handed out stay with their users, and can no longer be given back; level 2 reports them
  /// (`violation_kind::leak`).
  ~block_resource() override;

  /// A block of the driver, uninitialised.
  /// @param bytes may be 0: the block differs from all others then, too.
  /// @param align a power of two; beyond 256 the driver is asked for so much more that a block fits in.
  /// @throws out_of_memory, with what is free on the device; cuda_error if the driver refuses for another
  /// reason; std::invalid_argument if `align` is not a power of two. Nothing has changed then.
  [[nodiscard, gnu::returns_nonnull]] void* allocate(std::size_t bytes,
                                                     std::size_t align = default_alignment);
  /// Gives a block back; null is none. Of one that was not handed out so level 1 reports
  /// `violation_kind::bad_deallocate`, and nothing is done. If the driver refuses, the block is lost until
  /// the process ends: a warning.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept;

  /// A snapshot in numbers. Bytes are as asked for. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(name_); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The device.
  [[nodiscard]] device_number device() const noexcept { return device_; }

 private:
  [[nodiscard]] std::uintptr_t ask(std::size_t bytes, std::size_t align);
  void give_back(std::uintptr_t block, std::size_t bytes, std::size_t align) noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  driver* driver_;
  device_number device_;
  char const* name_;
  tidemark::detail::usage_counter counter_;

  detail::over_aligned over_aligned_;
  std::mutex mutex_;                       // for what follows
  tidemark::detail::block_ledger ledger_;  // what is handed out
};

extern template class block_resource<block_kind::device>;
extern template class block_resource<block_kind::pinned>;
extern template class block_resource<block_kind::managed>;

/// Blocks from `cuMemAlloc`.
using device_resource = block_resource<block_kind::device>;
/// Blocks from `cuMemHostAlloc`.
using pinned_resource = block_resource<block_kind::pinned>;
/// Blocks from `cuMemAllocManaged`.
using managed_resource = block_resource<block_kind::managed>;

}  // namespace tidemark::cuda
