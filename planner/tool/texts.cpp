// SPDX-License-Identifier: Apache-2.0
#include "texts.hpp"

#include <array>
#include <cstdio>

namespace tidemark::tools {

std::string number_text(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, ",");
  return text;
}

byte_unit unit_of(std::size_t bytes) {
  static constexpr std::array<char const*, 7> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t power = 0;
  while (power + 1 < names.size() && bytes >> (10 * (power + 1)) != 0) ++power;
  return {names[power], static_cast<double>(std::size_t{1} << (10 * power))};
}

std::string bytes_text(std::size_t bytes) {
  const byte_unit unit = unit_of(bytes);
  std::string exact = number_text(bytes) + " B";
  if (unit.bytes == 1) return exact;
  return exact + " (" + decimal_text(static_cast<double>(bytes) / unit.bytes, 1) + " " + unit.name + ")";
}

std::string duration_text(std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>{time}.count();
  return seconds < 1 ? decimal_text(seconds * 1000, 1) + " ms" : decimal_text(seconds, 2) + " s";
}

std::string decimal_text(double number, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

}  // namespace tidemark::tools
