// SPDX-License-Identifier: Apache-2.0
/// @file
/// `whole_allocations`: the memory of an address space under compute-sanitizer. Owns it.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Ranges that are each one allocation of `cuMemAlloc`. compute-sanitizer accepts a heap of NVTX only if the
/// heap is exactly one such allocation. It refuses virtual memory and memory of pools (seen with 2025.3.1 and
/// 13.5 on an H100). A range is therefore allocated and freed as a whole.
///
/// Invariant: `held_bytes()` is the sum of the allocated ranges that were neither freed nor abandoned. The
/// caller makes the device current in relaxed mode, in which a capture permits the calls. Thread-safety: one
/// thread at a time.
class whole_allocations {
 public:
  /// Returns true if the tool that listens to NVTX accepts no other memory.
  [[nodiscard]] static bool are_needed() noexcept;

  whole_allocations(driver& driver, device_budget& budget) noexcept : driver_{&driver}, budget_{&budget} {}

  /// Allocates a range of at least `least_bytes`, and at most the larger of `wanted_bytes` and the next
  /// chunk: 64 MiB, then twice the previous size. @return success, or the error. @throws std::bad_alloc;
  /// nothing is allocated then.
  [[nodiscard]] outcome allocate(std::size_t least_bytes, std::size_t wanted_bytes, byte_range& range);
  /// Ends the use of a range; `free_ended` frees it.
  void end(byte_range range) noexcept;
  /// Ends the use of all ranges.
  void end_all() noexcept;
  /// Frees all ended ranges. @pre No work uses them. @return success, or the last error.
  outcome free_ended() noexcept;
  /// Returns true if an ended range is not freed yet.
  [[nodiscard]] bool has_ended_ranges() const noexcept;
  /// Leaves a range allocated until the process ends.
  void abandon(byte_range range) noexcept;

  /// Returns the bytes from an address to the end of its range.
  [[nodiscard]] std::size_t bytes_behind(std::uintptr_t address) const noexcept;
  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  static constexpr std::size_t first_chunk_bytes = 64 * MiB;
  struct allocation {
    byte_range range;
    bool has_ended = false;
  };
  [[nodiscard]] outcome allocate_exactly(std::size_t bytes, byte_range& range) noexcept;

  driver* driver_;
  device_budget* budget_;
  std::size_t next_chunk_bytes_ = first_chunk_bytes;
  std::vector<allocation> allocations_;
};

}  // namespace tidemark::gpu::detail
