// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapped_range`: reserved addresses of a device and the memory of their units. Owns both, and frees them
/// only on request.
///
/// The cost of a mapping depends much more on the handle than on the bytes (decision 17). Handles are
/// therefore as large as the wanted part allows: at most `handle_bytes_max`, and at most a quarter of the
/// units before them in the range, which keeps small ranges small. Smaller handles are tried if the device or
/// its budget has no memory for a handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// One allocation of physical memory and its mapping.
struct mapped_handle {
  byte_range addresses;
  physical_handle memory = 0;
};

/// One reservation in units of `unit_bytes`, with handles of 1, 2, 4, … units.
///
/// The driver unmaps only whole mappings: a handle is unmapped when no unit of it is needed. Handles stay
/// until their memory is released, and can be mapped again with their contents if other memory could not be
/// unmapped.
///
/// Invariants of each unit: `usable` implies `mapped` implies `held`. Invariants of each handle: it begins at
/// a multiple of its units, and all its units have the same record except for `wanted`. Units without a
/// record are neither wanted nor held.
///
/// The caller waits for work that uses the memory, checks that no stream captures, and makes the device
/// current. Thread-safety: one thread at a time.
class mapped_range {
  struct unit {
    physical_handle memory = 0;  // valid if `held`, as is `order`
    std::uint8_t order = 0;      // the handle has 2^order units
    bool wanted = false;         // the unit must get memory
    bool held = false;           // the unit has memory
    bool mapped = false;         // its memory is mapped to its addresses
    bool usable = false;         // the devices may access it
  };
  struct units {
    std::size_t first, last;  // [first, last)
  };

 public:
  /// @param accessible_from devices that may access the memory
  /// @pre `handle_bytes_max` is a multiple of `unit_bytes`; both are powers of two.
  mapped_range(driver& driver, device_budget& budget, memory_properties const& memory,
               device_set accessible_from, std::size_t unit_bytes, std::size_t handle_bytes_max,
               byte_range range) noexcept
      : driver_{&driver},
        budget_{&budget},
        memory_{memory},
        accessible_from_{accessible_from},
        unit_bytes_{unit_bytes},
        handle_units_max_{handle_bytes_max / unit_bytes},
        range_{range} {}

  /// Returns the addresses.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Returns the bytes that are wanted. O(units), as the next two functions.
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return bytes_of(&unit::wanted); }
  /// Returns the bytes of held physical memory, mapped or not.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return bytes_of(&unit::held); }
  /// Returns the bytes of mapped memory.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return bytes_of(&unit::mapped); }

  /// Records whether the units of `part` are wanted.
  /// @return false, with nothing changed, if there is no memory for the records.
  [[nodiscard]] bool want(byte_range part, bool wanted) noexcept;

  /// Makes the wanted units of `part` usable, with their held memory or with new memory.
  /// @return success, or the error that ended the call.
  [[nodiscard]] outcome map(byte_range part) noexcept;
  /// Returns the mapped bytes at the front of `part`, up to the end of the handle that contains the end of
  /// the first `least_bytes`; 0 if fewer are mapped.
  [[nodiscard]] std::size_t mapped_front(byte_range part, std::size_t least_bytes) const noexcept;
  /// Returns the handles that contain bytes of `part`, which need not begin or end at a unit. Returns none if
  /// a unit of the part is not wanted or not usable. @throws std::bad_alloc
  [[nodiscard]] std::vector<mapped_handle> handles_behind(byte_range part) const;
  /// Unmaps the handles of `part` without wanted units outside of it. They keep their memory.
  /// @return success, or the error of the first handle that could not be unmapped.
  [[nodiscard]] outcome unmap(byte_range part) noexcept;
  /// Releases the unmapped handles of `part`. @return success, or the last error.
  outcome release(byte_range part) noexcept;
  /// Frees the addresses. @pre No unit is mapped.
  [[nodiscard]] outcome free() noexcept { return {driver_->free_reservation(range_), "cuMemAddressFree"}; }

  /// Records the end of the use of the addresses; they may be freed later.
  void end() noexcept { ended_ = true; }
  /// Returns true if `end` was called.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  [[nodiscard]] std::size_t bytes_of(bool unit::* state) const noexcept;
  [[nodiscard]] std::size_t first_of(byte_range part) const noexcept;
  [[nodiscard]] std::size_t last_of(byte_range part) const noexcept;
  [[nodiscard]] byte_range addresses(std::size_t first, std::size_t last) const noexcept;
  [[nodiscard]] units handle_at(std::size_t index) const noexcept;
  [[nodiscard]] bool is_due(std::size_t index) const noexcept;
  [[nodiscard]] bool may_unmap(std::size_t index, units part) const noexcept;
  [[nodiscard]] std::size_t largest_at(std::size_t index, std::size_t last) const noexcept;
  [[nodiscard]] outcome create_at(std::size_t index, std::size_t last) noexcept;
  [[nodiscard]] outcome map_one(std::size_t index, std::size_t last) noexcept;
  [[nodiscard]] outcome unmap_run(units run) noexcept;

  driver* driver_;
  device_budget* budget_;  // counts held memory
  memory_properties memory_;
  device_set accessible_from_;
  std::size_t unit_bytes_;
  std::size_t handle_units_max_;  // a power of two
  byte_range range_;
  bool ended_ = false;
  std::vector<unit> units_;  // up to the last unit that was ever wanted
};

}  // namespace tidemark::gpu::detail
