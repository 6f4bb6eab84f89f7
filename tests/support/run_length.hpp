// SPDX-License-Identifier: Apache-2.0
// The length of tests of random sequences: full, or shorter if the environment requests it, like ./run test
// for slow steps.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tidemark::test {

inline constexpr std::uint64_t full_steps = 100'000;  // of a sequence

inline std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  char const* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Sequences of `steps` steps do something at least `times` times. Returns how often the sequences of this
/// run must do it.
inline std::uint64_t in_this_length(std::uint64_t times, std::uint64_t steps = full_steps) {
  return times * number_from_environment("TIDEMARK_STEPS", steps) / steps;
}

}  // namespace tidemark::test
