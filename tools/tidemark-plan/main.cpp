// SPDX-License-Identifier: Apache-2.0
// tidemark-plan: places the blocks of a file of lifetimes, or of a step of a recorded trace.
#include <algorithm>
#include <array>
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

#include <tidemark/plan.hpp>

#include "command_line.hpp"
#include "pending_file.hpp"
#include "picture.hpp"
#include "plan_file.hpp"
#include "progress_line.hpp"
#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"
#include "table.hpp"
#include "texts.hpp"

namespace tidemark::tools {
namespace {

constexpr int exit_fits = 0, exit_too_high = 1, exit_wrong = 2;

/// The blocks to place, and where they are from.
struct question {
  plan_file file;
  std::string title;
  std::string left_out;  // of the step, in words
};

question read_question(command_line const& asked) {
  std::string const& path = asked.trace.empty() ? asked.file : asked.trace;
  // Any bytes may be in a file's name, and not in a picture.
  const std::string name = printable(std::filesystem::path{path}.filename().string(), 200);
  if (asked.trace.empty()) {
    question given{read_lifetimes(path), name, {}};
    if (asked.replans) {
      for (lifetime& block : given.file.blocks) block.offset.reset();
    }
    return given;
  }
  const recorded_trace trace = read_trace(path);
  const std::vector<trace_step> steps = read_steps(asked.steps, trace);
  if (asked.step >= steps.size()) {
    throw std::runtime_error("--step is " + std::to_string(asked.step) + ", and " + asked.steps + " has " +
                             std::to_string(steps.size()) + " steps, counted from 0");
  }
  step_lifetimes found = lifetimes_of(trace, steps[asked.step]);
  return {std::move(found.within), name + ", step " + std::to_string(asked.step),
          number_text(found.outliving) + " that outlive the step, and " + number_text(found.from_before) +
              " from before that are freed in it"};
}

/// Every two files of the command line are two: a plan must not replace what it was made of.
void require_different_files(command_line const& asked) {
  const std::vector<std::string const*> inputs{&asked.file, &asked.trace, &asked.steps};
  const std::vector<std::string const*> outputs{&asked.out, &asked.lifetimes, &asked.picture};
  const auto are_one = [](std::string const& one, std::string const& other) {
    std::error_code error;
    if (one.empty() || other.empty()) return false;
    if (std::filesystem::equivalent(one, other, error)) return std::filesystem::is_regular_file(one, error);
    return std::filesystem::weakly_canonical(one, error) == std::filesystem::weakly_canonical(other, error) &&
           !std::filesystem::exists(one, error);
  };
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (std::string const* input : inputs) {
      if (are_one(**output, *input)) throw std::runtime_error(**output + ": it would replace what is read");
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (are_one(**output, **other)) throw std::runtime_error(**output + ": two files would have that name");
    }
    if (!(*output)->empty()) pending_file::require_writable(**output);
  }
}

/// What make_plan says of blocks, which it numbers: with their ids, and the line of the last that it names.
[[noreturn]] void refuse(command_line const& asked, question const& given, std::string_view reason) {
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
    if (none != nullptr || number >= given.file.ids.size()) continue;
    text += printable(given.file.ids[number]);
    reason.remove_prefix(digits);
    last = number;
  }
  std::string where = asked.trace.empty() ? asked.file : asked.trace;
  if (last && asked.trace.empty()) where += ":" + std::to_string(*last + plan_file::first_line);
  throw std::runtime_error(where + ": " + text);
}

plan search(command_line const& asked, question const& given) {
  plan_options options = asked.options;
  progress_line line;
  if (asked.shows_progress || line.is_on_terminal()) {
    options.on_progress = [&](plan_progress const& now) { line.show(now); };
  }
  try {
    if (options.capacity != 0 && options.time_limit == no_time_limit) {
      // No plan is below the bound, however long the search for it takes: it is then an ordinary one.
      plan_options quick = options;
      quick.time_limit = std::chrono::nanoseconds{0};
      if (make_plan(given.file.blocks, quick).lower_bound > options.capacity) {
        options.time_limit = std::chrono::seconds{1};
      }
    }
    return make_plan(given.file.blocks, options);
  } catch (std::invalid_argument const& error) {
    refuse(asked, given, error.what());
  }
}

void print(question const& given, plan const& made, std::chrono::nanoseconds elapsed) {
  std::printf("blocks  %s\n", number_text(given.file.blocks.size()).c_str());
  if (!given.left_out.empty()) std::printf("        left out: %s\n", given.left_out.c_str());
  std::printf("bound   %s\n", bytes_text(made.lower_bound).c_str());
  std::printf("height  %s\n", bytes_text(made.height).c_str());
  std::printf("ratio   %.4f, %s\n", made.ratio(),
              made.optimal ? "and no plan is lower" : "and there may be a lower plan");
  std::printf("time    %s\n", duration_text(elapsed).c_str());
  for (plan_stage const& stage : made.stages) {
    std::printf("        %-12s %9s  %18s B  %13s blocks placed\n", stage.name,
                duration_text(stage.elapsed).c_str(), number_text(stage.height).c_str(),
                number_text(stage.nodes).c_str());
  }
  errno = 0;
  if (std::fflush(stdout) != 0) {
    throw std::runtime_error("standard output: " + std::generic_category().message(errno));
  }
}

/// Writes the files and prints the result. A file gets its name when everything else has worked.
void tell(command_line const& asked, question const& given, plan const& made,
          std::chrono::nanoseconds elapsed) {
  std::optional<pending_file> lifetimes, out, picture;
  if (!asked.lifetimes.empty()) lifetimes.emplace(asked.lifetimes, given.file.text());
  if (!asked.out.empty()) out.emplace(asked.out, given.file.text(made.offsets));
  if (!asked.picture.empty()) picture.emplace(asked.picture, picture_of(given.file, made, given.title));
  const std::array files{&lifetimes, &out, &picture};
  for (std::optional<pending_file>* file : files) {
    if (*file && (*file)->is_special()) (*file)->appear();
  }
  print(given, made, elapsed);
  for (std::optional<pending_file>* file : files) {
    if (*file && !(*file)->is_special()) (*file)->appear();
  }
}

int run(command_line const& asked) {
  require_different_files(asked);
  const question given = read_question(asked);
  const auto begin = std::chrono::steady_clock::now();
  const plan made = search(asked, given);
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  tell(asked, given, made, elapsed);
  const std::size_t capacity = asked.options.capacity;
  if (capacity == 0 || made.height <= capacity) return exit_fits;
  std::string reason = "the lowest plan that was found has " + number_text(made.height);
  if (made.optimal) reason = "no plan is lower than " + number_text(made.height);
  if (made.lower_bound > capacity) reason = "their bound is " + number_text(made.lower_bound);
  std::fprintf(stderr, "tidemark-plan: the blocks were not fitted into %s bytes: %s\n",
               number_text(capacity).c_str(), reason.c_str());
  return exit_too_high;
}

}  // namespace
}  // namespace tidemark::tools

int main(int count, char** arguments) {
  // A file that would be too large is then an error of write, with a reason; so is a pipe that nobody reads.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const std::optional asked = tidemark::tools::read_command_line(count, arguments);
    return asked ? tidemark::tools::run(*asked) : tidemark::tools::exit_fits;
  } catch (std::bad_alloc const&) {
    std::fputs("tidemark-plan: there is too little memory\n", stderr);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "tidemark-plan: %s\n", error.what());
  }
  return tidemark::tools::exit_wrong;
}
