// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_set`: a set of the machine's devices. Owns nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace tidemark::gpu {

/// A device's number, as in `cudaSetDevice`.
using device_number = int;

/// A set of device numbers of one process, for options such as the peers of a device.
///
/// ```cpp
/// gpu::virtual_memory space{{.device = 0, .accessible_from = {1, 2}}};
/// ```
/// A device's number converts to the set of that device. Thread-safety: as an integer. Complexity: O(1).
class device_set {
 public:
  /// Maximum number of devices, above that of any machine: devices are 0 to 63.
  static constexpr device_number max_devices = 64;

  /// Makes an empty set.
  constexpr device_set() noexcept = default;
  /// Makes a set of one device. @throws std::invalid_argument if the number is not 0 to 63.
  constexpr device_set(device_number device) { insert(device); }  // NOLINT(google-explicit-constructor)
  /// Makes a set of these devices. @throws std::invalid_argument if a number is not 0 to 63.
  constexpr device_set(std::initializer_list<device_number> devices) {
    for (const device_number each : devices) insert(each);
  }

  /// Adds a device. @throws std::invalid_argument, with nothing changed, if the number is not 0 to 63.
  constexpr void insert(device_number device) {
    if (device < 0 || device >= max_devices)
      throw std::invalid_argument("gpu::device_set: " + std::to_string(device) +
                                  " is not a device number; device numbers are 0 to 63");
    bits_ |= bit_of(device);
  }
  /// Returns true if the set has the device.
  [[nodiscard]] constexpr bool contains(device_number device) const noexcept {
    return device >= 0 && device < max_devices && (bits_ & bit_of(device)) != 0;
  }
  /// Returns true if the set has no device.
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  /// Returns the number of devices.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return static_cast<std::size_t>(std::popcount(bits_));
  }

  friend constexpr bool operator==(device_set const&, device_set const&) = default;

 private:
  static constexpr std::uint64_t bit_of(device_number device) noexcept { return std::uint64_t{1} << device; }

  std::uint64_t bits_ = 0;
};

}  // namespace tidemark::gpu
