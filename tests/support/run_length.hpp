// SPDX-License-Identifier: Apache-2.0
// How long tests of random sequences are: in full, or shorter where the environment says so, as ./run test
// does where steps are slow.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tidemark::test {

inline constexpr std::uint64_t full_steps = 100'000;  // of a sequence

inline std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  char const* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Of something that all full sequences together do at least `times` times: how often these must.
inline std::uint64_t in_this_length(std::uint64_t times) {
  return times * number_from_environment("TIDEMARK_STEPS", full_steps) / full_steps;
}

}  // namespace tidemark::test
