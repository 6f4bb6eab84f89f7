// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include <CLI/CLI.hpp>

#include "table.hpp"

namespace tidemark::tools {
namespace {

constexpr std::chrono::nanoseconds usual_time_limit = std::chrono::seconds{1};

constexpr char const* description =
    "Places blocks with known lifetimes in as little memory as it finds. Reads a file of lifetimes\n"
    "(id,lower,upper,size[,alignment][,offset]), a recorded trace, or a step of a trace.";

constexpr char const* closing =
    "A block is live from `lower` to `upper`. Two blocks that are live at the same time share no byte. A "
    "block\n"
    "with an offset keeps it, unless --replan is set. In the sources of tidemark,\n"
    "planner/docs/formats.md describes files of lifetimes, and docs/traces.md describes traces.\n"
    "The first interrupt (SIGINT, Ctrl-C) ends the search and writes the lowest plan so far. The second "
    "ends\n"
    "the program.\n"
    "The picture has time across and addresses upwards. Each time at which a block begins or ends is one "
    "step\n"
    "of the time axis. Labels are the numbers of the file.\n"
    "Exit status: 0 with a plan, which fits into --capacity if set; 1 if no plan fits (the lowest plan is\n"
    "still written), or without a proof; 2 with a sentence if the input, an option or an output file is\n"
    "invalid. No file is then written, but a device or a pipe may have received a part.";

CLI::Option* add_number(CLI::App& app, std::string const& name, std::size_t& value, std::string const& help) {
  const auto read = [&value, name](std::string const& text) {
    char const* reason = nullptr;
    value = whole_number(text, reason);
    if (reason != nullptr) throw CLI::ValidationError(name + " is '" + printable(text) + "', " + reason);
  };
  return app.add_option_function<std::string>(name, read, help);
}

std::chrono::nanoseconds duration(std::string const& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool begins_as_number = text.find_first_not_of("0123456789.") != 0;  // rejects signs, inf and nan
  if (!begins_as_number || error != std::errc{} || end != text.data() + text.size()) {
    throw CLI::ValidationError("--time-limit is '" + printable(text) + "', not a number of seconds");
  }
  const std::chrono::duration<double> wanted{seconds};
  if (wanted >= no_time_limit) return no_time_limit;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wanted);
}

/// Checks options that depend on each other.
void check_together(command_line const& command) {
  const bool from_trace = !command.trace.empty();
  if (from_trace == !command.file.empty()) {
    throw CLI::ValidationError(from_trace ? "FILE.csv and --from-trace exclude each other"
                                          : "FILE.csv or --from-trace is required");
  }
  if (!from_trace && command.step) throw CLI::ValidationError("--step needs --from-trace");
  if (from_trace && !command.form.empty()) {
    throw CLI::ValidationError("--from and --from-trace exclude each other");
  }
  if (!command.form.empty() && command.form != "ggml" && command.form != "xla") {
    throw CLI::ValidationError("--from is '" + printable(command.form) + "', neither ggml nor xla");
  }
  if (!from_trace && command.form.empty() && !command.lifetimes.empty()) {
    throw CLI::ValidationError("--lifetimes needs --from or --from-trace");
  }
  if (command.allocation && command.form != "xla") {
    throw CLI::ValidationError("--allocation needs --from xla");
  }
  if (!std::has_single_bit(command.options.alignment)) {
    throw CLI::ValidationError("--alignment is " + std::to_string(command.options.alignment) +
                               ", not a power of two");
  }
}

}  // namespace

std::optional<command_line> read_command_line(int count, char const* const* arguments) {
  command_line command;
  command.options.alignment = 1;
  CLI::App app{description, "tidemark-plan"};
  app.footer(closing);
  app.add_option("FILE", command.file, "the lifetimes")->type_name(".csv");
  app.add_option("--from", command.form, "the program that printed FILE: ggml's graph allocator, or XLA")
      ->type_name("ggml|xla");
  std::size_t allocation = 0;
  CLI::Option* const allocations =
      add_number(app, "--allocation", allocation,
                 "number of XLA's allocation (default: the largest temporary allocation)");
  allocations->type_name("N");
  app.add_option("--from-trace", command.trace, "a recorded trace, instead of FILE")->type_name("TRACE");
  std::size_t step_number = 0;
  CLI::Option* const step =
      add_number(app, "--step", step_number, "number of the step, from 0 (default: the whole trace)");
  step->type_name("K");
  app.add_option("--lifetimes", command.lifetimes, "writes the lifetimes")->type_name("OUT.csv");
  app.add_option("--out", command.out, "writes the rows with their offsets in the column `offset`")
      ->type_name("OUT.csv");
  app.add_option("--picture", command.picture, "draws the plan")->type_name("OUT.svg");
  app.add_option("--prove", command.proof,
                 "searches for a proof that no plan is lower, after the search and for the same time; may\n"
                 "find a lower plan")
      ->type_name("OUT.txt");
  app.add_flag("--replan", command.replans, "ignores the file's offsets, such as those of a saved plan");
  std::optional<std::chrono::nanoseconds> time_limit;
  app.add_option_function<std::string>(
         "--time-limit", [&](std::string const& text) { time_limit = duration(text); },
         "time of the search, also a fraction (default: 1; no limit with --capacity or --node-limit)")
      ->type_name("SECONDS");
  std::size_t nodes = 0, seed = 0;
  CLI::Option* const node_limit = add_number(
      app, "--node-limit", nodes, "ends the search after N placed blocks; the same N gives the same plan");
  node_limit->type_name("N");
  add_number(app, "--alignment", command.options.alignment,
             "alignment of each offset, besides the alignment of its row (default: 1, as in MiniMalloc;\n"
             "planned_arena has 256)")
      ->type_name("BYTES");
  CLI::Option* const capacity =
      add_number(app, "--capacity", command.options.capacity, "searches until the plan fits into BYTES");
  capacity->type_name("BYTES");
  add_number(app, "--seed", seed, "seed of the search (default: 0)")->type_name("N");
  bool leaves_out_exact = false;
  app.add_flag("--no-exact", leaves_out_exact, "leaves out the exact search");
  app.add_flag("--progress", command.shows_progress,
               "prints the progress of the search to standard error, also if it is not a terminal");
  const auto fault_of_name = [](std::string const& file) -> std::string {
    if (file.empty()) return "names no file";
    return {};
  };
  for (char const* option : {"FILE", "--from-trace", "--lifetimes", "--out", "--picture", "--prove"})
    app.get_option(option)->check(fault_of_name);
  try {
    app.parse(count, arguments);
    if (allocations->count() != 0) command.allocation = allocation;
    if (step->count() != 0) command.step = step_number;
    check_together(command);
    if (capacity->count() != 0 && command.options.capacity == 0) {
      throw CLI::ValidationError("--capacity is 0, expected at least 1");
    }
  } catch (CLI::CallForHelp const&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (CLI::ParseError const& error) {
    throw std::runtime_error(std::string{error.what()} + "; see --help");
  }
  command.options.exact = !leaves_out_exact;
  command.options.seed = seed;
  if (node_limit->count() != 0) command.options.node_limit = nodes;
  const bool is_limited = capacity->count() == 0 && node_limit->count() == 0;
  command.options.time_limit = time_limit.value_or(is_limited ? usual_time_limit : no_time_limit);
  return command;
}

}  // namespace tidemark::tools
