// SPDX-License-Identifier: Apache-2.0
// tidemark-plan: places the blocks of a file of lifetimes, of a step of a recorded trace, or of other
// programs' printed plans.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tidemark/planner.hpp>

#include "command_line.hpp"
#include "imported_lifetimes.hpp"
#include "pending_file.hpp"
#include "picture.hpp"
#include "plan_file.hpp"
#include "progress_line.hpp"
#include "proof.hpp"
#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"
#include "table.hpp"
#include "texts.hpp"

namespace tidemark::tools {
namespace {

constexpr int exit_fits = 0, exit_unmet = 1, exit_wrong = 2;

/// True after an interrupt (SIGINT).
std::atomic<bool> is_interrupted{false};
/// Ends the search with the lowest plan so far. Set by an interrupt, or if no plan fits.
std::atomic<bool> ends_search{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

/// Ends the search and restores the default action, so that the next interrupt ends the program.
extern "C" void on_interrupt(int signal) {
  is_interrupted.store(true, std::memory_order_relaxed);
  ends_search.store(true, std::memory_order_relaxed);
  std::signal(signal, SIG_DFL);
}

/// Installs the handler, unless the program was started with interrupts ignored, as with nohup.
void end_search_at_interrupts() {
  if (std::signal(SIGINT, on_interrupt) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

/// The blocks to place, and their source.
struct plan_input {
  plan_file file;
  std::string title;
  std::string left_out;                             // in words
  std::vector<std::size_t> lines = {};              // of the blocks, if they differ from the rows of `file`
  std::optional<std::size_t> height_before = {};    // bytes, of another program's plan
  std::optional<std::size_t> any_order_bound = {};  // bound for any order of the same operations

  /// Returns the block's line in the file that was read. Not for traces, where a block has several lines.
  [[nodiscard]] std::size_t line_of(std::size_t block) const {
    return lines.empty() ? block + plan_file::first_line : lines[block];
  }
};

/// Returns the step of the options, or else the whole trace.
trace_step chosen_step(command_line const& command, recorded_trace const& trace) {
  if (!command.step) return trace.events.empty() ? trace_step{1, 0} : trace_step{0, trace.events.size() - 1};
  const auto found = trace.steps.find(*command.step);
  if (found != trace.steps.end()) return found->second;
  throw std::runtime_error(command.trace + ": no step " + std::to_string(*command.step) + " has events");
}

plan_input read_input(command_line const& command) {
  std::string const& path = command.trace.empty() ? command.file : command.trace;
  // A file name may have any bytes, but a picture may not.
  const std::string name = printable(std::filesystem::path{path}.filename().string(), 200);
  if (!command.form.empty()) {
    imported_lifetimes read =
        command.form == "ggml" ? read_ggml_log(path) : read_xla_dump(path, command.allocation);
    return {std::move(read.file),  name,        std::move(read.left_out),
            std::move(read.lines), read.height, read.any_order_bound};
  }
  if (command.trace.empty()) {
    plan_input input{read_lifetimes(path), name, {}};
    if (command.replans) {
      for (lifetime& block : input.file.blocks) block.offset.reset();
    }
    return input;
  }
  const recorded_trace trace = read_trace(path);
  step_lifetimes found = lifetimes_of(trace, chosen_step(command, trace));
  return {std::move(found.within), command.step ? name + ", step " + std::to_string(*command.step) : name,
          number_text(found.outliving) + " that outlive the step, and " + number_text(found.from_before) +
              " from before that are freed in it"};
}

/// Rejects an output that would replace an input or another output.
void require_different_files(command_line const& command) {
  const std::vector<std::string const*> inputs{&command.file, &command.trace};
  const std::vector<std::string const*> outputs{&command.out, &command.lifetimes, &command.picture,
                                                &command.proof};
  const auto are_one = [](std::string const& one, std::string const& other) {
    std::error_code error;
    if (one.empty() || other.empty()) return false;
    if (std::filesystem::equivalent(one, other, error)) return std::filesystem::is_regular_file(one, error);
    return std::filesystem::weakly_canonical(one, error) == std::filesystem::weakly_canonical(other, error) &&
           !std::filesystem::exists(one, error);
  };
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (std::string const* input : inputs) {
      if (are_one(**output, *input))
        throw std::runtime_error(**output + ": the output would overwrite an input");
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (are_one(**output, **other)) throw std::runtime_error(**output + ": two outputs have this name");
    }
    if (!(*output)->empty()) pending_file::require_writable(**output);
  }
}

/// Throws make_plan's message with ids instead of block numbers, and with the line of the last block.
[[noreturn]] void refuse(command_line const& command, plan_input const& input, std::string_view reason) {
  constexpr std::string_view function = "make_plan: ", word = "block ";
  if (reason.starts_with(function)) reason.remove_prefix(function.size());
  std::string text;
  std::optional<std::size_t> last;
  while (!reason.empty()) {
    const std::size_t begin = std::min(reason.find(word), reason.size());
    text += reason.substr(0, begin);
    reason.remove_prefix(begin);
    if (reason.empty()) break;
    reason.remove_prefix(word.size());
    const std::size_t digits = std::min(reason.find_first_not_of("0123456789"), reason.size());
    char const* none = nullptr;
    const std::size_t number = whole_number(reason.substr(0, digits), none);
    text += word;
    if (none != nullptr || number >= input.file.ids.size()) continue;
    text += printable(input.file.ids[number]);
    reason.remove_prefix(digits);
    last = number;
  }
  std::string where = command.trace.empty() ? command.file : command.trace;
  if (last && command.trace.empty()) where += ":" + std::to_string(input.line_of(*last));
  throw std::runtime_error(where + ": " + text);
}

planner::result search(command_line const& command, plan_input const& input, planner::options options) {
  progress_line line;
  const bool shows = command.shows_progress || line.is_on_terminal();
  // If no plan fits, the search would continue until the plan cannot be lower. Limits this to one second, or
  // to the time that the refutation took.
  const bool may_never_end = options.capacity != 0 && options.time_limit == no_time_limit &&
                             options.node_limit == planner::options{}.node_limit;
  std::optional<std::chrono::nanoseconds> fits_not_since;
  options.on_progress = [&](planner::progress const& now) {
    if (shows) line.show(now);
    if (!may_never_end || now.proven_bound <= options.capacity) return;
    if (!fits_not_since) fits_not_since = now.elapsed;
    if (now.elapsed >
        *fits_not_since + std::max<std::chrono::nanoseconds>(*fits_not_since, std::chrono::seconds{1}))
      ends_search = true;
  };
  try {
    return planner::find_plan(input.file.blocks, options);
  } catch (std::invalid_argument const& error) {
    refuse(command, input, error.what());
  }
}

void print(plan_input const& input, planner::result const& made, std::optional<plan_proof> const& proof,
           std::chrono::nanoseconds elapsed) {
  std::printf("blocks  %s\n", number_text(input.file.blocks.size()).c_str());
  if (!input.left_out.empty()) std::printf("        left out: %s\n", input.left_out.c_str());
  if (input.height_before) std::printf("before  %s\n", bytes_text(*input.height_before).c_str());
  std::printf("bound   %s\n", bytes_text(made.lower_bound).c_str());
  if (made.proven_bound != made.lower_bound) {
    std::printf("        %s by the search\n", bytes_text(made.proven_bound).c_str());
  }
  if (input.any_order_bound) {
    std::printf("        %s in any order of the operations\n", bytes_text(*input.any_order_bound).c_str());
  }
  std::printf("height  %s\n", bytes_text(made.height).c_str());
  std::printf("ratio   %.4f, %s\n", made.ratio(),
              made.optimal ? "and no plan is lower" : "and there may be a lower plan");
  if (proof) {
    std::printf("proof   %s, %s case%s\n", proof->log.empty() ? "none" : "found",
                number_text(proof->cases).c_str(), proof->cases == 1 ? "" : "s");
  }
  std::printf("time    %s%s\n", duration_text(elapsed).c_str(), is_interrupted ? ", interrupted" : "");
  for (planner::stage const& stage : made.stages) {
    std::printf("        %-12s %9s  %18s B  %13s blocks placed\n", stage.name,
                duration_text(stage.elapsed).c_str(), number_text(stage.height).c_str(),
                number_text(stage.nodes).c_str());
  }
  errno = 0;
  if (std::fflush(stdout) != 0) {
    throw std::runtime_error("standard output: " + std::generic_category().message(errno));
  }
}

/// Writes the files and prints the result. Files get their names after everything else has succeeded.
void write_results(command_line const& command, plan_input const& input, planner::result const& made,
                   std::optional<plan_proof> const& proof, std::chrono::nanoseconds elapsed) {
  std::optional<pending_file> lifetimes, out, picture, proof_log;
  if (!command.lifetimes.empty()) lifetimes.emplace(command.lifetimes, input.file.text());
  if (!command.out.empty()) out.emplace(command.out, input.file.text(made.offsets));
  if (!command.picture.empty()) picture.emplace(command.picture, picture_of(input.file, made, input.title));
  if (proof && !proof->log.empty()) proof_log.emplace(command.proof, proof->log);
  const std::array files{&lifetimes, &out, &picture, &proof_log};
  for (std::optional<pending_file>* file : files) {
    if (*file && (*file)->is_special()) (*file)->appear();
  }
  print(input, made, proof, elapsed);
  for (std::optional<pending_file>* file : files) {
    if (*file && !(*file)->is_special()) (*file)->appear();
  }
}

int run(command_line const& command) {
  require_different_files(command);
  const plan_input input = read_input(command);
  end_search_at_interrupts();
  planner::options options = command.options;
  options.stop = &ends_search;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_now = [&] { return std::chrono::steady_clock::now() - begin; };
  planner::result made = search(command, input, options);
  std::optional<plan_proof> proof;
  if (!command.proof.empty()) {
    // The order of these statements matters: an interrupt between them must end the proof too.
    ends_search = false;
    if (is_interrupted) ends_search = true;
    // A capacity ended the search, and may be lower than the height to prove.
    if (options.capacity != 0 && options.time_limit == no_time_limit) {
      options.time_limit = std::max<std::chrono::nanoseconds>(elapsed_now(), std::chrono::seconds{1});
    }
    proof = prove_lowest(input.file.blocks, made, options);
  }
  const auto elapsed = elapsed_now();
  write_results(command, input, made, proof, elapsed);
  const bool lacks_proof = proof && proof->log.empty();
  if (lacks_proof) {
    std::fprintf(stderr, "tidemark-plan: %s was not written: %s\n", command.proof.c_str(),
                 proof->too_large ? "more than 256 blocks have a proof only if the plan is at the bound"
                                  : "there is no proof within the limits");
  }
  const std::size_t capacity = command.options.capacity;
  if (capacity == 0 || made.height <= capacity) return lacks_proof ? exit_unmet : exit_fits;
  std::string reason = "the lowest plan that was found has " + number_text(made.height);
  if (made.proven_bound > capacity) reason = "no plan is lower than " + number_text(made.proven_bound);
  std::fprintf(stderr, "tidemark-plan: the blocks were not fitted into %s bytes: %s\n",
               number_text(capacity).c_str(), reason.c_str());
  return exit_unmet;
}

}  // namespace
}  // namespace tidemark::tools

int main(int count, char** arguments) {
  // Turns a file that grows too large, or a pipe without a reader, into a write error with a reason.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const std::optional command = tidemark::tools::read_command_line(count, arguments);
    return command ? tidemark::tools::run(*command) : tidemark::tools::exit_fits;
  } catch (std::bad_alloc const&) {
    std::fputs("tidemark-plan: there is too little memory\n", stderr);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tidemark-plan: %s\n", error.what());
  }
  return tidemark::tools::exit_wrong;
}
