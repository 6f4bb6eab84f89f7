// SPDX-License-Identifier: Apache-2.0
// Strategy: random additions to ranges, compared with a list of numbers as the model.
#include "section_maximum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tidemark::planner::detail {
namespace {

TEST(section_maximum, returns_the_first_maximum_of_a_range) {
  std::mt19937_64 random{1};
  for (std::size_t n = 1; n < 40; ++n) {
    std::vector<offset_type> numbers(n);
    section_maximum tested{n};
    for (int k = 0; k < 100; ++k) {
      if (k % 50 == 0) {
        for (offset_type& each : numbers) each = random() % 8;
        tested.restart(numbers);
      }
      const auto begin = static_cast<std::uint32_t>(random() % n);
      const auto end = static_cast<std::uint32_t>(begin + 1 + random() % (n - begin));
      const std::uint64_t added = random() % 4;
      tested.add({begin, end}, static_cast<double>(added));
      for (std::uint32_t s = begin; s < end; ++s) numbers[s] += added;
      const auto from = static_cast<std::uint32_t>(random() % n);
      const auto to = static_cast<std::uint32_t>(from + 1 + random() % (n - from));
      const auto at = [&](std::uint32_t s) { return numbers.begin() + static_cast<std::ptrdiff_t>(s); };
      EXPECT_EQ(tested.largest_in({from, to}).section, std::max_element(at(from), at(to)) - numbers.begin());
    }
  }
}

}  // namespace
}  // namespace tidemark::planner::detail
