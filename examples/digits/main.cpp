// SPDX-License-Identifier: Apache-2.0
// digits: trains a network on handwritten digits, and shows the cost of its memory on an arena and elsewhere.
#include "standard.hpp"

import digits.input;
import digits.training;
import tidemark;

namespace {

constexpr char const* help_text =
    "usage: digits [options]\n\n"
    "Trains a network, with the memory of its steps on an arena, and compares five allocators.\n\n"
    "  --allocator NAME   train on this one only: arena, malloc, monotonic, epoch_resource, which\n"
    "                     makes each step an epoch over a pool, or planned, which records a step\n"
    "                     and runs the others by its plan\n"
    "  --optimizer NAME   sgd (with momentum, the default) or adam\n"
    "  --epochs N         passes over the training images, 1 to 1000 (default 20)\n"
    "  --batch N          images per step, 1 to 10000 (default 32)\n"
    "  --seed N           a whole number (default 1), or 'random' for a seed from the system\n"
    "  --data FILE        other images: on each line 64 pixels 0..16 and a label 0..9\n"
    "  --help             print this";

void print_progress(std::size_t epoch, std::size_t epochs, training_result const& result) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::size_t done = epoch * 30 / epochs;
  if (terminal) std::printf("\r[%s%s] ", std::string(done, '#').c_str(), std::string(30 - done, '.').c_str());
  std::printf("epoch %4zu/%zu   loss %.6f   test accuracy %6.2f %%   %7.1f us per step", epoch, epochs,
              result.loss, result.accuracy, 1e6 * median(result.steps));
  if (!terminal || epoch == epochs) std::puts("");
  std::fflush(stdout);
}

void print_memory(training_result const& result) {
  std::puts("\narena (KiB)        used       peak  committed   reserved   system calls  after epoch 1");
  std::size_t late = 0;
  for (std::size_t i = 0; i < result.end.size(); ++i) {
    tidemark::arena_stats const& s = result.end[i];
    const std::size_t after = s.system_calls - result.warm[i].system_calls;
    const auto kib = [](std::size_t bytes) { return (bytes + tidemark::KiB / 2) / tidemark::KiB; };
    std::printf("%-12s %10zu %10zu %10zu %10zu %14zu %14zu\n", s.name, kib(s.used_bytes), kib(s.peak_bytes),
                kib(s.committed_bytes), kib(s.reserved_bytes), std::size_t{s.system_calls}, after);
    late += after;
  }
  std::printf("system calls after the first epoch: %zu\n", late);
}

// Prints the fate of the blocks of the steps, which are epochs. The promoted blocks are losses and
// accuracies.
void print_epochs(tidemark::epoch_stats const& s) {
  std::printf("blocks of the epochs: %llu allocated, %llu freed, %llu reclaimed, %llu promoted\n",
              static_cast<unsigned long long>(s.allocations),
              static_cast<unsigned long long>(s.deallocations), static_cast<unsigned long long>(s.reclaimed),
              static_cast<unsigned long long>(s.promoted));
}

// Prints the sources of the blocks of the repeated steps.
void print_plans(tidemark::planned_arena_stats const& s) {
  std::printf("steps by plans: %llu of %llu; blocks: %llu planned, %llu from malloc; plans made: %llu\n",
              static_cast<unsigned long long>(s.planned_steps), static_cast<unsigned long long>(s.steps),
              static_cast<unsigned long long>(s.planned_allocations),
              static_cast<unsigned long long>(s.fallback_allocations),
              static_cast<unsigned long long>(s.plans_made));
}

// Returns true if all trainings ended like the first.
bool compare(options const& chosen, dataset const& data, training_result const& first) {
  bool same = true;
  constexpr std::size_t kinds = std::size(allocator_names);
  std::vector<double> steps[kinds], alone;
  tidemark::epoch_stats epochs;
  tidemark::planned_arena_stats planned;
  std::optional<std::size_t> step_bytes[kinds];
  for (int round = 0; round < 3; ++round) {  // in turns, so that a disturbance affects all allocators
    for (std::size_t i = 0; i < kinds; ++i) {
      const training_result result = train(chosen, allocator_kind(i), data, [](auto, auto&) {});
      steps[i].insert(steps[i].end(), result.steps.begin(), result.steps.end());
      same &= std::bit_cast<std::size_t>(result.loss) == std::bit_cast<std::size_t>(first.loss);
      same &= result.accuracy == first.accuracy;
      if (result.epochs) epochs = *result.epochs;
      if (result.planned) planned = *result.planned;
      step_bytes[i] = result.step_bytes;
    }
  }
  for (std::size_t i = 0; i < kinds; ++i) alone.push_back(seconds_alone(allocator_kind(i), first.blocks));
  const auto count = static_cast<double>(first.blocks.size());
  std::size_t block_bytes = 0;
  for (auto const& [bytes, align, address] : first.blocks) block_bytes += bytes;
  std::printf(
      "\nThe same training on five allocators: the median of %zu steps. A step allocates %.0f blocks;\n"
      "'memory alone' is what that and freeing them takes, with nothing computed; 'step' is the memory "
      "taken\n"
      "for steps, of malloc and monotonic the blocks alone.\n\n"
      "allocator      time per step  vs malloc    memory alone   per allocation  vs malloc         step\n",
      steps[0].size(), count);
  for (std::size_t i = 0; i < kinds; ++i) {
    const double step = median(steps[i]), step_ratio = median(steps[1]) / step, ratio = alone[1] / alone[i];
    const auto kib = static_cast<double>(step_bytes[i].value_or(block_bytes)) / tidemark::KiB;
    std::printf("%-14s %10.1f us %8.2f x   %10.2f us %13.1f ns %8.2f x %8.1f KiB\n", allocator_names[i],
                1e6 * step, step_ratio, 1e6 * alone[i], 1e9 * alone[i] / count, ratio, kib);
  }
  print_epochs(epochs);
  print_plans(planned);
  std::puts(same ? "same result on all five, to the last bit" : "the results differ: that is a bug");
  return same;
}

int run(int argc, char** argv) {
  const options chosen = parse_options(argc, argv);
  if (chosen.help) return std::puts(help_text) < 0 ? 1 : 0;
  tidemark::arena images{{.name = "images"}};
  const dataset data = read_digits(chosen.data, images);
  const tidemark::arena_stats loaded = images.stats();
  const allocator_kind kind = chosen.allocator.value_or(allocator_kind::arena);
  std::printf(
      "A 64-128-10 network learns to read handwritten digits from %zu images and is tested on %zu others.\n"
      "Its steps allocate on: %s. Optimizer %s, batch %zu, seed %llu.\n\n",
      data.size() - data.test_count(), data.test_count(), allocator_names[int(kind)],
      optimizer_names[chosen.adam], chosen.batch, static_cast<unsigned long long>(chosen.seed));
  training_result result =
      train(chosen, kind, data, [&](std::size_t epoch, auto& r) { print_progress(epoch, chosen.epochs, r); });
  std::printf("\ntest accuracy: %.2f %%\nloss:          %.17g\ntime per step: %.1f us (median of %zu)\n",
              result.accuracy, result.loss, 1e6 * median(result.steps), result.steps.size());
  result.warm.insert(result.warm.begin(), loaded);
  result.end.insert(result.end.begin(), images.stats());
  print_memory(result);
  if (result.epochs) print_epochs(*result.epochs);
  if (result.planned) print_plans(*result.planned);
  return chosen.allocator || compare(chosen, data, result) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    return std::fflush(stdout) == 0 ? status : throw std::runtime_error{"cannot write the output."};
  } catch (std::exception const& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return dynamic_cast<input_error const*>(&error) != nullptr ? 2 : 1;
  }
}
