// SPDX-License-Identifier: Apache-2.0
/// @file `command_line`: the options of tidemark-plan.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <tidemark/planner.hpp>

namespace tidemark::tools {

/// The options of tidemark-plan.
struct command_line {
  std::string file;                       ///< of lifetimes; empty: they are made from a trace
  std::string trace, steps;               ///< files
  std::size_t step = 0;                   ///< of the trace
  std::string form;                       ///< of the file: "ggml" or "xla"; empty: our own
  std::optional<std::size_t> allocation;  ///< of an XLA dump

  std::string out, lifetimes, picture, proof;  ///< files to write; empty: none
  bool replans = false;                        ///< leaves the offsets of the file out
  bool shows_progress = false;                 ///< also without a terminal
  planner::options options;
};

/// A search without a limit ends after that time. Durations of all time there is would overflow.
inline constexpr std::chrono::hours no_time_limit{24 * 365 * 100};

/// Reads the arguments of main. Nothing for `--help`, which it has printed.
/// @throws std::runtime_error with a sentence if they are wrong.
[[nodiscard]] std::optional<command_line> read_command_line(int count, char const* const* arguments);

}  // namespace tidemark::tools
