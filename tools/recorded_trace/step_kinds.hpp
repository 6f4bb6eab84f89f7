// SPDX-License-Identifier: Apache-2.0
/// @file `generate_steps`: synthetic programs with several kinds of steps. For benchmarks; not part of the
/// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recorded_trace.hpp"

namespace tidemark::tools {

/// A trace, and the steps of its program.
struct stepped_trace {
  recorded_trace trace;
  std::vector<trace_step> steps;
  std::vector<std::uint64_t> kinds;  ///< kind of each step, as its program would name it
};

/// The programs with small blocks that `generate_steps` knows:
///
/// | name | steps |
/// |---|---|
/// | `cycle` | training, evaluation and generation in turn, all with the same first requests |
/// | `random` | the same three in any order |
/// | `lengths` | trainings of a recurrent network of eight lengths, in any order |
/// | `growing` | the same network, longer by one each step |
/// | `restarted` | trainings of six steps, of which the first allocates what lives to the last, again |
/// | `many` | twelve kinds in turn: more than a planned arena keeps by default |
/// | `transformer` | four recorded steps of a transformer, of four lengths, in turn |
[[nodiscard]] std::span<char const* const> generated_programs() noexcept;

/// Generates the steps of a program, equal in each call. Also generates `unet`: trainings of a U-Net with
/// blocks of 0.5 to 32 MiB, of which 187 MiB are live at once.
/// @throws std::invalid_argument for an unknown name; std::runtime_error if the recorded steps cannot be
///   read.
[[nodiscard]] stepped_trace generate_steps(std::string const& program, std::size_t steps = 300);

}  // namespace tidemark::tools
