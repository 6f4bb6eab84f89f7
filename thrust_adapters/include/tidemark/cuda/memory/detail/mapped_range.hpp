// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapped_range`: reserved addresses of a device, and the memory behind their units. Owns both, and frees
/// them only on request.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::cuda::detail {

/// One reservation in units of `unit_bytes`. Each unit is one mapping of one handle, because the driver
/// unmaps whole mappings only.
///
/// Handles are kept as long as their memory, so that a unit can be mapped again with its contents if
/// another could not be unmapped.
///
/// Invariants, of each unit: `usable` implies `mapped` implies `held`. Units without a record are neither
/// wanted nor held.
///
/// The caller waits for work that uses the memory, checks that no stream captures, and makes the device
/// current. Thread-safety: one thread at a time.
class mapped_range {
  struct unit {
    physical_handle memory = 0;  // valid if `held`
    bool wanted = false;         // it shall have memory
    bool held = false;           // it has memory
    bool mapped = false;         // its memory is mapped to its addresses
    bool usable = false;         // the device may access it
  };

 public:
  mapped_range(driver& driver, device_number device, std::size_t unit_bytes, byte_range range) noexcept
      : driver_{&driver}, device_{device}, unit_bytes_{unit_bytes}, range_{range} {}

  /// The addresses.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Bytes that shall have memory. O(units), as the next two.
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return bytes_of(&unit::wanted); }
  /// Bytes of physical memory that it holds, mapped or not.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return bytes_of(&unit::held); }
  /// Bytes of it that are mapped.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return bytes_of(&unit::mapped); }

  /// Records whether the units of `part` shall have memory.
  /// @return false, with nothing changed, if there is no memory for the records.
  [[nodiscard]] bool want(byte_range part, bool wanted) noexcept;

  /// Makes the wanted units of `part` usable, with the memory they hold or with new memory.
  /// @return success, or the error that ended it.
  [[nodiscard]] outcome map(byte_range part) noexcept;
  /// Unmaps the units of `part`, which still hold their memory.
  /// @return success, or the error of the first unit that could not be unmapped.
  [[nodiscard]] outcome unmap(byte_range part) noexcept;
  /// Releases the memory of unmapped units of `part`. @return success, or the last error.
  outcome release(byte_range part) noexcept;
  /// Frees the addresses. @pre nothing is mapped.
  [[nodiscard]] outcome free() noexcept { return {driver_->free_reservation(range_), "cuMemAddressFree"}; }

  /// Records that the addresses are no longer used; they may be freed later.
  void end() noexcept { ended_ = true; }
  /// Whether `end` was called.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  [[nodiscard]] std::size_t bytes_of(bool unit::* state) const noexcept;
  [[nodiscard]] std::size_t first_of(byte_range part) const noexcept;
  [[nodiscard]] std::size_t last_of(byte_range part) const noexcept;
  [[nodiscard]] byte_range addresses(std::size_t first, std::size_t last) const noexcept;
  [[nodiscard]] outcome map_one(std::size_t index) noexcept;

  driver* driver_;
  device_number device_;
  std::size_t unit_bytes_;
  byte_range range_;
  bool ended_ = false;
  std::vector<unit> units_;  // up to the last that was ever wanted
};

}  // namespace tidemark::cuda::detail
