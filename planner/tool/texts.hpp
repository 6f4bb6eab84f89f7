// SPDX-License-Identifier: Apache-2.0
/// @file Formats numbers for the output of tidemark-plan.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tidemark::tools {

/// Formats a number as 1,234,567.
[[nodiscard]] std::string number_text(std::uint64_t number);

/// The largest unit that is not above a number of bytes.
struct byte_unit {
  char const* name;
  double bytes;
};
[[nodiscard]] byte_unit unit_of(std::size_t bytes);

/// Formats bytes as 1,234,567 B (1.2 MiB).
[[nodiscard]] std::string bytes_text(std::size_t bytes);

/// Formats a time as 12.3 ms.
[[nodiscard]] std::string duration_text(std::chrono::nanoseconds time);

/// Formats a number with `decimals` decimals.
[[nodiscard]] std::string decimal_text(double number, int decimals);

}  // namespace tidemark::tools
