// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_set`: which of the machine's devices. Owns nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace tidemark::gpu {

/// A device's number, as `cudaSetDevice` takes it.
using device_number = int;

/// Devices of one process, as a set of their numbers: for options that name the peers of a device.
///
/// ```cpp
/// gpu::virtual_memory space{{.device = 0, .accessible_from = {1, 2}}};
/// ```
/// A device's number converts to the set of that device. Thread-safety: as an integer. Complexity: O(1).
class device_set {
 public:
  /// More than any machine has: devices are 0 to 63.
  static constexpr device_number max_devices = 64;

  /// No device.
  constexpr device_set() noexcept = default;
  /// One device. @throws std::invalid_argument if the number is not one of 0 to 63.
  constexpr device_set(device_number device) { insert(device); }  // NOLINT(google-explicit-constructor)
  /// These devices. @throws std::invalid_argument if a number is not one of 0 to 63.
  constexpr device_set(std::initializer_list<device_number> devices) {
    for (const device_number each : devices) insert(each);
  }

  /// Adds a device. @throws std::invalid_argument, with nothing changed, if the number is not one of 0 to 63.
  constexpr void insert(device_number device) {
    if (device < 0 || device >= max_devices)
      throw std::invalid_argument("gpu::device_set: " + std::to_string(device) +
                                  " is not the number of a device, which is 0 to 63");
    bits_ |= bit_of(device);
  }
  /// Whether a device is in it.
  [[nodiscard]] constexpr bool contains(device_number device) const noexcept {
    return device >= 0 && device < max_devices && (bits_ & bit_of(device)) != 0;
  }
  /// Whether no device is in it.
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  /// How many devices are in it.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return static_cast<std::size_t>(std::popcount(bits_));
  }

  friend constexpr bool operator==(device_set const&, device_set const&) = default;

 private:
  static constexpr std::uint64_t bit_of(device_number device) noexcept { return std::uint64_t{1} << device; }

  std::uint64_t bits_ = 0;
};

}  // namespace tidemark::gpu
