// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapped_range`: reserved addresses of a device, and the memory behind their units. Owns both, and frees
/// them only on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// One allocation of physical memory, and where it is mapped.
struct mapped_handle {
  byte_range addresses;
  physical_handle memory = 0;
};

/// One reservation in units of `unit_bytes`, with handles of 1, 2, 4, … units. Mapping costs much more for
/// each handle than for each byte (decision 17), so handles are as large as the wanted part allows: at most
/// `handle_bytes_max`, and at most a quarter of what lies before them in the range, so that a small range
/// does not hold much more than it wants. Where the device has no memory for one, or its budget does not
/// allow it, smaller ones are tried.
///
/// The driver unmaps whole mappings only: a handle goes when none of its units is wanted any more.
///
/// Handles are kept as long as their memory, so that it can be mapped again with its contents if other memory
/// could not be unmapped.
///
/// Invariants, of each unit: `usable` implies `mapped` implies `held`. Of each handle: it begins at a
/// multiple of its units, and all its units have the same record but for `wanted`. Units without a record are
/// neither wanted nor held.
///
/// The caller waits for work that uses the memory, checks that no stream captures, and makes the device
/// current. Thread-safety: one thread at a time.
class mapped_range {
  struct unit {
    physical_handle memory = 0;  // valid if `held`, as `order`
    std::uint8_t order = 0;      // the handle has 2^order units
    bool wanted = false;         // it shall have memory
    bool held = false;           // it has memory
    bool mapped = false;         // its memory is mapped to its addresses
    bool usable = false;         // the devices may access it
  };
  struct units {
    std::size_t first, last;  // [first, last)
  };

 public:
  /// @param accessible_from the devices that may access the memory.
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
  /// Bytes at the front of `part` that are mapped, up to the end of the handle in which the first
  /// `least_bytes` end; 0 if fewer are mapped.
  [[nodiscard]] std::size_t mapped_front(byte_range part, std::size_t least_bytes) const noexcept;
  /// The handles of which a byte lies in `part`, which need not begin or end at a unit; none if a unit of it
  /// is not wanted or not usable. @throws std::bad_alloc
  [[nodiscard]] std::vector<mapped_handle> handles_behind(byte_range part) const;
  /// Unmaps the handles of `part` that have no wanted unit outside of it. They still hold their memory.
  /// @return success, or the error of the first that could not be unmapped.
  [[nodiscard]] outcome unmap(byte_range part) noexcept;
  /// Releases the unmapped handles of `part`. @return success, or the last error.
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
  [[nodiscard]] units handle_at(std::size_t index) const noexcept;
  [[nodiscard]] bool is_due(std::size_t index) const noexcept;
  [[nodiscard]] bool may_unmap(std::size_t index, units part) const noexcept;
  [[nodiscard]] std::size_t largest_at(std::size_t index, std::size_t last) const noexcept;
  [[nodiscard]] outcome create_at(std::size_t index, std::size_t last) noexcept;
  [[nodiscard]] outcome map_one(std::size_t index, std::size_t last) noexcept;
  [[nodiscard]] outcome unmap_run(units run) noexcept;

  driver* driver_;
  device_budget* budget_;  // what is held counts in it
  memory_properties memory_;
  device_set accessible_from_;
  std::size_t unit_bytes_;
  std::size_t handle_units_max_;  // a power of two
  byte_range range_;
  bool ended_ = false;
  std::vector<unit> units_;  // up to the last that was ever wanted
};

}  // namespace tidemark::gpu::detail
