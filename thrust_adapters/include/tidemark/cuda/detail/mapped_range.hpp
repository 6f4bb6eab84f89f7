// SPDX-License-Identifier: Apache-2.0
/// @file
/// `mapped_range`: reserved addresses of a device, and the memory behind their units. Owns both, but gives
/// them back only when told to.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/byte_range.hpp>
#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// How a row of calls ended: the result of the last one, and what it was.
struct outcome {
  status result = status::success;
  char const* call = "";

  /// Whether all went well.
  [[nodiscard]] bool good() const noexcept { return result == status::success; }
};

/// One reservation in units of `unit_bytes`, each of which is one mapping of one handle, since the driver
/// unmaps whole mappings only.
///
/// Handles are kept as long as their memory: the driver would let go of them at once, and then a unit that
/// was unmapped in vain could not be mapped again with what is in it.
///
/// Invariants, of each unit: `usable` implies `mapped` implies `held`. Units beyond those on record are
/// neither wanted nor held.
///
/// Nothing here waits for work that uses the memory, or looks whether a stream captures; that is for the
/// caller, who also makes the device current. One thread at a time.
class mapped_range {
 public:
  mapped_range(driver& driver, device_number device, std::size_t unit_bytes, byte_range range) noexcept
      : driver_{&driver}, device_{device}, unit_bytes_{unit_bytes}, range_{range} {}

  /// The addresses.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Bytes that memory is wanted behind.
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return wanted_ * unit_bytes_; }
  /// Bytes of physical memory that it holds, mapped or not.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_ * unit_bytes_; }
  /// Bytes of it that are mapped.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return mapped_ * unit_bytes_; }

  /// Whether memory is wanted behind the units of `part`; changes nothing else.
  /// @return false, with nothing changed, if there is no memory for the records.
  [[nodiscard]] bool want(byte_range part, bool wanted) noexcept;

  /// Makes the units of `part` that are wanted usable, with the memory they hold, or else with new memory.
  /// @return success, or why it ended early.
  [[nodiscard]] outcome map(byte_range part) noexcept;
  /// Unmaps the units of `part`, which go on to hold their memory.
  /// @return success, or why one could not be unmapped: those before it are then.
  [[nodiscard]] outcome unmap(byte_range part) noexcept;
  /// Lets go of the memory that units of `part` hold without mapping it. @return why one would not go.
  outcome let_go(byte_range part) noexcept;
  /// Gives the addresses back. @pre nothing is mapped.
  [[nodiscard]] outcome free() noexcept { return {driver_->free_reservation(range_), "cuMemAddressFree"}; }

  /// Notes that nobody uses the addresses any more, which the driver may not take back yet.
  void end() noexcept { ended_ = true; }
  /// Whether that was noted.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }

 private:
  struct unit {
    physical_handle memory = 0;  // what it holds, if it does
    bool wanted = false;         // memory is to be behind it
    bool held = false;           // it has memory, and the handle for it
    bool mapped = false;         // its memory is behind its addresses
    bool usable = false;         // and the device may touch it
  };

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
  std::size_t wanted_ = 0;   // units that memory is wanted behind
  std::size_t held_ = 0;     // units that hold memory
  std::size_t mapped_ = 0;   // units that are mapped
};

}  // namespace tidemark::cuda::detail
