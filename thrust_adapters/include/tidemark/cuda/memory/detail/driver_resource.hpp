// SPDX-License-Identifier: Apache-2.0
/// @file
/// `driver_resource`: the base of resources whose blocks are the driver's. Owns records, not blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

/// Allocates and frees blocks by the calls of a derived class, aligns and counts them. The driver aligns
/// to 256 bytes; for more, a larger block is allocated, and its address recorded by that of its aligned
/// part, because nothing can be written beside the part.
///
/// Complexity: a call of the driver, and O(log blocks) for a record. Thread-safety: any thread; the driver
/// is called without the lock that guards the records.
class driver_resource : public tidemark::detail::forwarding_resource<driver_resource> {
 public:
  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = driver_block_alignment;

  /// A block of the driver, uninitialised.
  /// @param bytes may be 0: the block then differs from all others, and nothing may be written to it.
  /// @param align a power of two; more than 256 needs a larger block and a record.
  /// @throws out_of_memory if there is no memory, or no block can be so large; cuda_error of another error;
  /// std::invalid_argument if `align` is not a power of two. Only `refused` has changed then.
  [[nodiscard, gnu::returns_nonnull]] void* allocate(std::size_t bytes,
                                                     std::size_t align = default_alignment);
  /// Frees a block. Null: nothing happens. If the driver returns an error, the block is lost until the
  /// process ends: a warning (`refused_return`).
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept;

  /// A snapshot of all counts; bytes are as requested. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(name_); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// The device.
  [[nodiscard]] device_number device() const noexcept { return device_; }

 protected:
  /// Whether blocks count in the device's budget, which is asked for relief then.
  enum class counting { none, counted };
  /// The call of an outcome without memory, where the budget's limit is the reason.
  static constexpr char limit_call[] = "gpu::device_budget";  // one object, compared by address

  /// @param kind the class's name, for messages
  /// @param device -1: the current device
  /// @param budget whether blocks count here; if not, the derived class may see to it
  /// @param checks_blocks whether `deallocate` reports wrong deallocations
  /// (`violation_kind::bad_deallocate`) and, at level 2, the destructor live blocks
  /// (`violation_kind::leak`)
  /// @throws cuda_error or out_of_memory if the driver does not return the current device
  driver_resource(char const* kind, char const* name, device_number device, driver& driver, counting budget,
                  bool checks_blocks);
  ~driver_resource() override;

  driver* driver_;
  device_budget* budget_ = nullptr;            // null: blocks do not count
  std::shared_ptr<counted_pool> pool_record_;  // of the pool that blocks are of, if it counts in the budget
  tidemark::detail::usage_counter counter_;

 private:
  /// The calls of the driver.
  virtual outcome allocate_block(std::size_t bytes, std::uintptr_t& block) = 0;
  virtual outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept = 0;
  /// For `exhaustion_report`.
  [[nodiscard]] virtual std::size_t largest_bytes() const noexcept {
    return exhaustion_report::unknown_bytes;
  }

  [[nodiscard]] outcome take_block(std::size_t bytes, std::uintptr_t& block);
  void free_padded(std::uintptr_t block, std::size_t bytes, std::size_t padded) noexcept;

  char const* kind_;
  char const* name_;
  device_number device_;
  bool checks_blocks_;
  tidemark::detail::fork_safe<> mutex_;                    // for what follows
  std::map<std::uintptr_t, std::uintptr_t> over_aligned_;  // blocks by their aligned parts
  tidemark::detail::block_ledger ledger_;                  // live blocks, if `checks_blocks_`
};

}  // namespace tidemark::gpu::detail
