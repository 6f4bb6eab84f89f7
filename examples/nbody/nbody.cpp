// SPDX-License-Identifier: Apache-2.0
// nbody: measures the octree of a simulation, which threads build again in each step, on different memory
// resources.
//
// A star cluster moves under its own gravity. In each step threads order the bodies along a curve, build the
// octree of Barnes and Hut in memory of the step, sum forces over it, and drop it:
//
//   shared_arena                 a tidemark::shared_arena: a handle for each thread, a scope for the step
//   monotonic                    a std::pmr::monotonic_buffer_resource for each thread, released at the end
//   synchronized_pool            a tidemark::synchronized_pool: each block is deallocated, as below
//   std_synchronized_pool        a std::pmr::synchronized_pool_resource
//   malloc                       std::pmr::new_delete_resource()
//   mimalloc, jemalloc, tcmalloc if these libraries are installed
//
// The program prints the median times of a step for each resource, and the growth of the process. Each
// resource runs in its own process, so that it finds no memory left by another. The final positions must be
// bit-identical on any resource and with any number of threads. Otherwise the exit status is 1; it is 2 for
// an invalid option.
//
//   nbody --bodies 20000 --steps 10 --picture cluster.svg
//
// Read `octree::build` and `team_memory` first. Unlike other examples, this one includes headers and imports
// no modules. Clang refuses to import a module compiled without -fopenmp into a file compiled with it.
#include <getopt.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tidemark/arena.hpp>
#include <tidemark/pool.hpp>

#include "bodies.hpp"
#include "loaded_malloc.hpp"
#include "octree.hpp"
#include "picture.hpp"
#include "simulation.hpp"
#include "tree_memory.hpp"

namespace {

using namespace nbody;

struct options {
  std::size_t bodies = 20'000;
  std::size_t steps = 10;
  std::size_t threads = 0;  // 0: OpenMP chooses
  std::string picture;      // empty: no picture
  bool help = false;
};

// ---- memories beside each other ---------------------------------------------------------------------------

/// The results of a process.
struct outcome {
  bool is_there = false;
  std::array<char, 200> error{};  // if not `is_there`, unless the process died
  step_times median;
  std::size_t grown_bytes = 0;  // growth of the process since before the first tree
  std::uint64_t positions = 0;  // a hash of their bits
  simulation::accuracy forces;
  octree::size tree;
  energy first, last;
  double max_drift = 0;  // of the energy, relative to its first value
  std::size_t threads = 0;
  tidemark::shared_arena_stats team;
  std::uint64_t later_system_calls = 0;  // of the team, after the first tree
};

struct contender {
  std::string name;
  std::function<std::unique_ptr<tree_memory>(std::size_t threads)> make;  // null: the team
};

std::shared_ptr<std::pmr::memory_resource> borrowed(std::pmr::memory_resource* resource) {
  return {resource, [](auto*) {}};
}

contender common(std::string name, std::function<std::shared_ptr<std::pmr::memory_resource>()> const& make) {
  return {std::move(name), [=](std::size_t) { return std::make_unique<common_memory>(make()); }};
}

/// Adds an allocator from a library, or prints the reason for omitting it.
template <class Calls>
void add_loaded(std::vector<contender>& all, char const* name, char const* file) {
  const tidemark::bench::shared_library library{file};
  const Calls calls{library};
  if (library.is_there() && calls.are_there()) {
    all.push_back(
        common(name, [=] { return std::make_shared<tidemark::bench::loaded_malloc<Calls>>(calls); }));
    return;
  }
  std::printf("left out: %s: %s\n", name,
              library.is_there() ? "the library lacks a function" : library.why_not().c_str());
}

std::vector<contender> contenders() {
  std::vector<contender> all{
      {"shared_arena", nullptr},
      {"monotonic", [](std::size_t threads) { return std::make_unique<monotonic_memory>(threads); }},
      common("synchronized_pool", [] { return std::make_shared<tidemark::synchronized_pool>(); }),
      common("std_synchronized_pool",
             [] { return std::make_shared<std::pmr::synchronized_pool_resource>(); }),
      common("malloc", [] { return borrowed(std::pmr::new_delete_resource()); })};
  add_loaded<tidemark::bench::mimalloc_calls>(all, "mimalloc", "libmimalloc.so.2");
  add_loaded<tidemark::bench::jemalloc_calls>(all, "jemalloc", "libjemalloc.so.2");
  add_loaded<tidemark::bench::tcmalloc_calls>(all, "tcmalloc", "libtcmalloc_minimal.so.4");
  return all;
}

std::size_t most_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * tidemark::KiB;
}

/// Returns the FNV-1a hash of the bits of all positions.
std::uint64_t hash_of(std::span<vec3 const> positions) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (vec3 const& at : positions) {
    for (double x : {at.x, at.y, at.z}) hash = (hash ^ std::bit_cast<std::uint64_t>(x)) * 0x100000001b3;
  }
  return hash;
}

step_times median_of(std::span<step_times> all) {
  step_times median;
  for (double step_times::* part :
       {&step_times::order, &step_times::build, &step_times::forces, &step_times::drop, &step_times::whole}) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::ranges::nth_element(all, middle, {}, part);
    median.*part = (*middle).*part;
  }
  return median;
}

outcome measure(contender const& who, options const& chosen) {
  outcome told;
  if (chosen.threads > 0) omp_set_num_threads(static_cast<int>(chosen.threads));
#pragma omp parallel
#pragma omp single
  told.threads = static_cast<std::size_t>(omp_get_num_threads());

  tidemark::shared_arena team{{.name = "tree"}};
  const std::unique_ptr<tree_memory> memory =
      who.make ? who.make(told.threads) : std::make_unique<team_memory>(team);
  // The results of each step. The tree's memory ends with the step, so they lie elsewhere.
  tidemark::arena kept{{.name = "energies"}};
  const std::span<energy> energies = kept.push_array<energy>(chosen.steps + 1);
  std::vector<step_times> times(chosen.steps);

  simulation cluster{chosen.bodies, *memory};
  const std::size_t before_bytes = most_resident_bytes();
  cluster.begin();
  energies[0] = cluster.energy_now();
  told.forces = cluster.compare_with_direct_summation();
  const std::uint64_t first_calls = team.stats().system_calls;
  for (std::size_t i = 0; i < chosen.steps; ++i) {
    times[i] = cluster.step();
    energies[i + 1] = cluster.energy_now();
  }

  told.grown_bytes = most_resident_bytes() - before_bytes;
  told.median = median_of(times);
  told.positions = hash_of(cluster.bodies().positions);
  told.tree = cluster.first_size();
  told.first = energies.front();
  told.last = energies.back();
  for (energy const& one : energies) {
    told.max_drift = std::max(told.max_drift, std::abs(one.total() / told.first.total() - 1));
  }
  told.team = team.stats();
  told.later_system_calls = told.team.system_calls - first_calls;
  if (!who.make && !chosen.picture.empty()) write_picture(cluster.bodies(), chosen.picture);
  told.is_there = true;
  return told;
}

/// Runs `measure` in its own process. No other thread exists yet, of OpenMP or otherwise.
outcome measure_apart(contender const& who, options const& chosen) {
  std::fflush(stdout);
  void* const shared =
      mmap(nullptr, sizeof(outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::system_error{errno, std::generic_category(), "mmap"};
  outcome* const told = new (shared) outcome;
  const pid_t child = fork();
  if (child == 0) {
    try {
      *told = measure(who, chosen);
    } catch (std::exception const& error) {
      std::snprintf(told->error.data(), told->error.size(), "%s", error.what());
    }
    _exit(0);
  }
  if (child < 0) throw std::system_error{errno, std::generic_category(), "fork"};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const outcome result = *told;
  munmap(shared, sizeof(outcome));
  if (!result.is_there) {
    throw std::runtime_error{who.name + ": " +
                             (result.error[0] != 0 ? result.error.data() : "its process died")};
  }
  return result;
}

// ---- options and output -----------------------------------------------------------------------------------

// A user error: what() is one sentence for stderr, and the exit status is 2.
using input_error = std::domain_error;

options parse_options(int argc, char** argv) {
  static constexpr option known[] = {{"bodies", 1, nullptr, 'b'},  {"steps", 1, nullptr, 's'},
                                     {"threads", 1, nullptr, 't'}, {"picture", 1, nullptr, 'p'},
                                     {"help", 0, nullptr, 'h'},    {nullptr, 0, nullptr, 0}};
  int index = 0;  // of the option in `known`; optarg is its value
  const auto number = [&](std::size_t least, std::size_t most) {
    std::size_t value = 0;
    char const* const end = optarg + std::strlen(optarg);
    const auto [stop, error] = std::from_chars(optarg, end, value);
    if (error == std::errc{} && stop == end && least <= value && value <= most) return value;
    throw input_error{std::string{"--"} + known[index].name + " needs a whole number from " +
                      std::to_string(least) + " to " + std::to_string(most) + ", not '" + optarg + "'."};
  };
  options chosen;
  opterr = 0;  // the program prints its own messages
  while (optind < argc) {
    const std::string word = argv[optind];
    const int letter = getopt_long(argc, argv, "+:h", known, &index);
    if (letter == 'b') chosen.bodies = number(2, 10'000'000);
    if (letter == 's') chosen.steps = number(1, 100'000);
    if (letter == 't') chosen.threads = number(1, 256);
    if (letter == 'p') chosen.picture = optarg;
    if (letter == 'h') chosen.help = true;
    if (letter == ':') throw input_error{word + " needs a value; see --help."};
    if (letter == '?' || letter == -1) throw input_error{"there is no option '" + word + "'; see --help."};
  }
  return chosen;
}

constexpr char const* help_text =
    "usage: nbody [options]\n\n"
    "Moves a star cluster. Threads build an octree in each step, in a shared arena and in other memory.\n\n"
    "  --bodies N      bodies of the cluster, 2 to 10000000 (default 20000)\n"
    "  --steps N       time steps, 1 to 100000 (default 10)\n"
    "  --threads N     threads, 1 to 256 (default: chosen by OpenMP, see OMP_NUM_THREADS)\n"
    "  --picture FILE  write the bodies at the end as SVG\n"
    "  --help          print this\n\n"
    "jemalloc may load only with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 in the environment.";

void print_row(std::string const& name, outcome const& told) {
  std::printf("%-21s %6.2f ms %6.2f ms %6.2f ms %6.2f ms %7.2f ms %7.1f MiB   %016llx\n", name.c_str(),
              1e3 * told.median.order, 1e3 * told.median.build, 1e3 * told.median.forces,
              1e3 * told.median.drop, 1e3 * told.median.whole,
              static_cast<double>(told.grown_bytes) / static_cast<double>(tidemark::MiB),
              static_cast<unsigned long long>(told.positions));
}

void print_summary(outcome const& told) {
  std::printf("\ntree: %zu nodes, %zu of them leaves, %zu KiB\n", told.tree.nodes, told.tree.leaves,
              told.tree.block_bytes / tidemark::KiB);
  std::printf(
      "shared_arena: %zu KiB at the peak, %zu KiB committed, %llu system calls after the first tree\n",
      told.team.peak_bytes / tidemark::KiB, told.team.committed_bytes / tidemark::KiB,
      static_cast<unsigned long long>(told.later_system_calls));
  std::printf("forces beside direct summation, %zu bodies: relative error %.2e mean, %.2e max\n",
              told.forces.bodies, told.forces.mean_error, told.forces.max_error);
  std::printf("energy: %.6f at first, %.6f at last, relative drift at most %.2e\n", told.first.total(),
              told.last.total(), told.max_drift);
}

int run(int argc, char** argv) {
  const options chosen = parse_options(argc, argv);
  if (chosen.help) return std::puts(help_text) < 0 ? 1 : 0;

  std::vector<std::pair<std::string, outcome>> results;
  for (contender const& who : contenders()) {
    results.emplace_back(who.name, measure_apart(who, chosen));
    outcome const& told = results.back().second;
    if (results.size() == 1) {
      std::printf("%zu bodies, %zu steps, threads: %zu\n\n", chosen.bodies, chosen.steps, told.threads);
      std::puts(
          "memory                    order     build    forces      drop       step   process grew by   "
          "positions");
    }
    print_row(who.name, told);
  }
  print_summary(results.front().second);
  if (!chosen.picture.empty()) std::printf("picture: %s\n", chosen.picture.c_str());
  if constexpr (tidemark::check_level >= 2) {
    std::puts("This is check level 2: tidemark keeps account of every block, and its times say little.");
  }
  for (auto const& [name, told] : results) {
    if (told.positions == results.front().second.positions) continue;
    throw std::runtime_error{"the positions on '" + name +
                             "' are not those on 'shared_arena', which is a bug."};
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    return std::fflush(stdout) == 0 ? status : throw std::runtime_error{"cannot write the output."};
  } catch (std::exception const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "nbody: %s\n", error.what());
    return dynamic_cast<input_error const*>(&error) != nullptr ? 2 : 1;
  }
}
