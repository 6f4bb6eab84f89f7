// SPDX-License-Identifier: Apache-2.0
// Strategy: random additions to ranges, beside a list of numbers as the model.
#include "../../pmr/src/plan/solver/section_maximum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tidemark::detail::planning {
namespace {

TEST(section_maximum, is_the_first_of_the_largest_of_a_range) {
  std::mt19937_64 random{1};
  for (std::size_t n = 1; n < 40; ++n) {
    std::vector<offset_type> numbers(n);
    for (offset_type& each : numbers) each = random() % 8;
    section_maximum tested{n};
    tested.restart(numbers);
    for (int k = 0; k < 100; ++k) {
      const auto begin = static_cast<std::uint32_t>(random() % n);
      const auto end = static_cast<std::uint32_t>(begin + 1 + random() % (n - begin));
      const std::uint64_t added = random() % 4;
      tested.add({begin, end}, static_cast<double>(added));
      for (std::uint32_t s = begin; s < end; ++s) numbers[s] += added;
      const auto from = static_cast<std::uint32_t>(random() % n);
      const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(from);
      const auto largest = std::max_element(first, numbers.end());
      EXPECT_EQ(tested.largest_in({from, static_cast<std::uint32_t>(n)}), largest - numbers.begin());
    }
  }
}

}  // namespace
}  // namespace tidemark::detail::planning
