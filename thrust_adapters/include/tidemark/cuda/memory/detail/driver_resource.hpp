// SPDX-License-Identifier: Apache-2.0
/// @file
/// `driver_resource`: the base of resources of driver blocks. Owns records, not blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/resource_stats.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>

namespace tidemark::gpu::detail {

/// Allocates and frees blocks by calls of a derived class, and aligns and counts them. The driver aligns to
/// 256 bytes. For a larger alignment, a larger block is allocated. Its address is recorded under the address
/// of its aligned part, because the host cannot write beside the part.
///
/// Complexity: one driver call, plus O(log blocks) for a record. Thread-safety: any thread; the driver is
/// called without the lock of the records.
class driver_resource : public tidemark::detail::forwarding_resource<driver_resource> {
 public:
  /// Minimum alignment of every block.
  static constexpr std::size_t default_alignment = driver_block_alignment;

  /// Allocates an uninitialised block of the driver.
  /// @param bytes may be 0: the block then has a unique address and no usable bytes.
  /// @param align a power of two; more than 256 needs a larger block and a record.
  /// @throws out_of_memory without memory, or if no block can be so large; cuda_error for another error;
  /// std::invalid_argument if `align` is not a power of two. Only the `refused` count has changed then.
  [[nodiscard, gnu::returns_nonnull]] void* allocate(std::size_t bytes,
                                                     std::size_t align = default_alignment);
  /// Frees a block. Does nothing for null. If the driver returns an error, the block is lost until the
  /// process ends, with a warning (`refused_return`).
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept;

  /// Returns a snapshot of all counts; bytes are as requested. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(name_); }
  /// Returns the name in messages.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// Returns the device.
  [[nodiscard]] device_number device() const noexcept { return device_; }

 protected:
  /// Selects whether blocks count in the device's budget, which is then asked for relief.
  enum class counting { none, counted };
  /// Call in an outcome without memory, if the budget's limit is the reason.
  static constexpr char limit_call[] = "gpu::device_budget";  // one object, compared by address

  /// @param kind name of the class in messages
  /// @param device -1: the current device
  /// @param budget `counted` if blocks count here; otherwise the derived class may count them
  /// @param checks_blocks true if `deallocate` reports wrong deallocations (`violation_kind::bad_deallocate`)
  /// and, at level 2, the destructor reports live blocks (`violation_kind::leak`)
  /// @throws cuda_error or out_of_memory if the driver does not return the current device
  driver_resource(char const* kind, char const* name, device_number device, driver& driver, counting budget,
                  bool checks_blocks);
  ~driver_resource() override;

  driver* driver_;
  device_budget* budget_ = nullptr;            // null: blocks do not count
  std::shared_ptr<counted_pool> pool_record_;  // record of the blocks' pool, if the budget counts it
  tidemark::detail::usage_counter counter_;

 private:
  /// The calls of the driver.
  virtual outcome allocate_block(std::size_t bytes, std::uintptr_t& block) = 0;
  virtual outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept = 0;
  /// Bytes for `exhaustion_report`.
  [[nodiscard]] virtual std::size_t largest_bytes() const noexcept {
    return exhaustion_report::unknown_bytes;
  }

  [[nodiscard]] outcome allocate_in_budget(std::size_t bytes, std::uintptr_t& block);
  void free_padded(std::uintptr_t block, std::size_t bytes, std::size_t padded) noexcept;

  char const* kind_;
  char const* name_;
  device_number device_;
  bool checks_blocks_;
  tidemark::detail::fork_safe<> mutex_;                    // protects the members below
  std::map<std::uintptr_t, std::uintptr_t> over_aligned_;  // blocks by their aligned parts
  tidemark::detail::block_ledger ledger_;                  // live blocks, if `checks_blocks_`
};

}  // namespace tidemark::gpu::detail
