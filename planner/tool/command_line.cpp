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
    "Places blocks whose lifetimes are known in as little memory as is found: reads\n"
    "id,lower,upper,size[,alignment][,offset], or a recorded trace or a step of it.";

constexpr char const* closing =
    "A block is live from the moment `lower` until the moment `upper`, and two that are live at one moment\n"
    "share no byte. A block whose row has an offset stays there, unless --replan is given. Rows are\n"
    "described in planner/docs/formats.md, traces in docs/traces.md of tidemark.\n"
    "An interrupt (SIGINT, Ctrl-C) ends the search, with the lowest plan so far; a second one ends the "
    "program.\n"
    "In the picture time goes across and addresses go up. Each moment at which a block begins or ends is "
    "one\n"
    "step of the time axis, so that idle stretches take no space; its labels are the\n"
    "file's own numbers.\n"
    "Exit status: 0 if a plan was made, and fits where --capacity is given; 1 if none was found that fits "
    "(the\n"
    "lowest one is written all the same), or no proof; 2, with a sentence and no file written, if the input, "
    "an option or "
    "a\n"
    "file to write is wrong. Nothing is undone that a device or a pipe got by then.";

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
  if (!command.steps.empty() && !command.step) throw CLI::ValidationError("--steps needs --step");
  if (!from_trace && command.step) {
    throw CLI::ValidationError("--steps and --step need --from-trace");
  }
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
  app.add_option("--from", command.form, "what printed FILE: ggml's graph allocator, or XLA")
      ->type_name("ggml|xla");
  std::size_t allocation = 0;
  CLI::Option* const allocations =
      add_number(app, "--allocation", allocation, "of XLA's, by number (default: the largest temporary one)");
  allocations->type_name("N");
  app.add_option("--from-trace", command.trace, "a recorded trace, instead of FILE")->type_name("TRACE");
  app.add_option("--steps", command.steps, "its steps (default: those that the trace has)")
      ->type_name("STEPS");
  std::size_t step_number = 0;
  CLI::Option* const step =
      add_number(app, "--step", step_number, "which of them, counted from 0 (default: the whole trace)");
  step->type_name("K");
  app.add_option("--lifetimes", command.lifetimes, "writes the lifetimes that were read")
      ->type_name("OUT.csv");
  app.add_option("--out", command.out, "writes the rows with a last column `offset`, or that column filled")
      ->type_name("OUT.csv");
  app.add_option("--picture", command.picture, "draws the plan")->type_name("OUT.svg");
  app.add_option("--prove", command.proof,
                 "after the search, for as long again: proves that no plan is lower, case by case, or\n"
                 "finds a lower one")
      ->type_name("OUT.txt");
  app.add_flag("--replan", command.replans,
               "ignores the file's offsets: places anew what a saved plan has placed");
  std::optional<std::chrono::nanoseconds> time_limit;
  app.add_option_function<std::string>(
         "--time-limit", [&](std::string const& text) { time_limit = duration(text); },
         "ends the search; fractions are fine (default: 1; none with --capacity or --node-limit)")
      ->type_name("SECONDS");
  std::size_t nodes = 0, seed = 0;
  CLI::Option* const node_limit = add_number(
      app, "--node-limit", nodes, "ends the search when it has placed N blocks: always with the same plan");
  node_limit->type_name("N");
  add_number(
      app, "--alignment", command.options.alignment,
      "of every offset, beside that of its row (default: 1, as MiniMalloc reads such files; planned_arena\n"
      "has 256)")
      ->type_name("BYTES");
  CLI::Option* const capacity =
      add_number(app, "--capacity", command.options.capacity, "searches until the plan fits into BYTES");
  capacity->type_name("BYTES");
  add_number(app, "--seed", seed, "of the random choices of the search (default: 0)")->type_name("N");
  bool leaves_out_exact = false;
  app.add_flag("--no-exact", leaves_out_exact, "leaves out the exact search, and goes on with quick ones");
  app.add_flag("--progress", command.shows_progress,
               "shows on standard error how far the search is, also where that is no terminal");
  const auto fault_of_name = [](std::string const& file) -> std::string {
    if (file.empty()) return "names no file";
    return {};
  };
  for (char const* option :
       {"FILE", "--from-trace", "--steps", "--lifetimes", "--out", "--picture", "--prove"})
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
