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
  std::string file;                       ///< of lifetimes; empty: lifetimes come from a trace
  std::string trace;                      ///< file
  std::optional<std::size_t> step;        ///< number of the step in the trace; none: the whole trace
  std::string form;                       ///< of the file: "ggml" or "xla"; empty: tidemark's own
  std::optional<std::size_t> allocation;  ///< of an XLA dump

  std::string out, lifetimes, picture, proof;  ///< files to write; empty: not written
  bool replans = false;                        ///< ignores the offsets of the file
  bool shows_progress = false;                 ///< also without a terminal
  planner::options options;
};

/// A search without a limit ends after this time, because the largest duration would overflow.
inline constexpr std::chrono::hours no_time_limit{24 * 365 * 100};

/// Reads the arguments of main. Prints the help and returns `nullopt` for `--help`.
/// @throws std::runtime_error with a sentence if an argument is wrong.
[[nodiscard]] std::optional<command_line> read_command_line(int count, char const* const* arguments);

}  // namespace tidemark::tools
