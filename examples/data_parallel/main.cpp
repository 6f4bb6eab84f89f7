// SPDX-License-Identifier: Apache-2.0
// data_parallel: trains the network of examples/digits on several ranks of MPI, each on a share of every
// batch. Gradients lie in a planned arena that is registered once, and one persistent reduction per step sums
// them. The same training runs with gradients in memory of malloc.
//
// A batch has four shards for any number of ranks. Gradients of each shard are rounded to multiples of 2^-40
// and added as integers, so that sums do not depend on the order. The weights are thus bit-identical on 1, 2
// and 4 ranks, whatever the order of the MPI reduction.
#include <mpi.h>
#include <stdlib.h>

#include "standard.hpp"

import digits.input;
import digits.tape;
import digits.training;
import tidemark;
import tidemark.mpi;

namespace {

constexpr char const* help_text =
    "usage: mpirun -n N data_parallel [options]\n\n"
    "Trains a network on N ranks, 1, 2 or 4, with gradients in registered planned memory, and again with\n"
    "gradients in memory of malloc.\n\n"
    "  --epochs N   passes over the training images, 1 to 1000 (default 20)\n"
    "  --batch N    images per step, a multiple of 4 from 4 to 1000 (default 32)\n"
    "  --seed N     a whole number (default 1), or 'random' for a seed from the system\n"
    "  --data FILE  other images: on each line 64 pixels 0..16 and a label 0..9\n"
    "  --help       print this";
constexpr option known_options[] = {{"epochs", 1, nullptr, 'e'}, {"batch", 1, nullptr, 'b'},
                                    {"seed", 1, nullptr, 's'},   {"data", 1, nullptr, 'd'},
                                    {"help", 0, nullptr, 'h'},   {nullptr, 0, nullptr, 0}};

constexpr std::size_t shards_per_batch = 4;
constexpr double fixed_point_one = 0x1p40;  // four gradients of up to 2^20 fit

struct ranks {
  int own = 0, all = 1;
  ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
  }
};

/// Counts the memory calls of the system.
class counted_memory final : public tidemark::os_memory {
 public:
  std::size_t calls = 0;

  void* reserve(std::size_t bytes, std::size_t align) noexcept override {
    return ++calls, system_.reserve(bytes, align);
  }
  bool commit(void* first, std::size_t bytes) noexcept override {
    return ++calls, system_.commit(first, bytes);
  }
  bool decommit(void* first, std::size_t bytes) noexcept override {
    return ++calls, system_.decommit(first, bytes);
  }
  bool release(void* first, std::size_t bytes) noexcept override {
    return ++calls, system_.release(first, bytes);
  }
  bool advise_huge_pages(void* first, std::size_t bytes, bool wanted) noexcept override {
    return ++calls, system_.advise_huge_pages(first, bytes, wanted);
  }
  bool prefault(void* first, std::size_t bytes) noexcept override {
    return ++calls, system_.prefault(first, bytes);
  }
  std::size_t page_size() noexcept override { return system_.page_size(); }
  bool entropy(void* first, std::size_t bytes) noexcept override { return system_.entropy(first, bytes); }

 private:
  tidemark::os_memory& system_ = tidemark::system_memory();
};

using gradient_sums = std::span<std::int64_t>;  // of each parameter; the last sum is the loss
constexpr std::size_t sums_count = network::parameter_count + 1;

/// Counts registrations of an arena or of the program itself.
class counted_registrar {
 public:
  counted_registrar(tidemark::mpi::dynamic_window const& window, std::size_t& count)
      : registrar_{window}, count_{&count} {}
  bool on_commit(tidemark::byte_range range) noexcept { return ++*count_, registrar_.on_commit(range); }
  bool on_decommit(tidemark::byte_range range) noexcept { return registrar_.on_decommit(range); }
  char const* refusal() const noexcept { return registrar_.refusal(); }

 private:
  tidemark::mpi::window_registrar registrar_;
  std::size_t* count_;
};

/// Runs steps by a plan, in memory registered with a window.
class planned_memory {
 public:
  static constexpr char const* name = "planned arena";

  explicit planned_memory(tidemark::mpi::dynamic_window const& window)
      : steps_{{.name = "steps"}, tidemark::virtual_memory{}, counted_registrar{window, registrations_}} {}

  template <class Body>
  void step(Body body) {
    const decltype(steps_)::step repeated{steps_};  // records the first step, then repeats it
    body(static_cast<std::pmr::memory_resource&>(steps_));
  }
  void add_up(gradient_sums sums) {
    if (!reduction_) reduction_.emplace(MPI_COMM_WORLD, sums);
    reduction_->start(sums);
    reduction_->wait();
  }
  /// Call after the recorded step. The reduction needs its memory at the same place on all ranks.
  void check() const {
    const auto found = tidemark::mpi::same_layout(MPI_COMM_WORLD, steps_.plans().at(0));
    if (!found) throw std::runtime_error{"the plans of the ranks differ: " + found.difference + "."};
  }
  std::size_t registrations() const { return registrations_; }

 private:
  std::size_t registrations_ = 0;
  tidemark::basic_planned_arena<tidemark::registered_memory<tidemark::virtual_memory, counted_registrar>>
      steps_;
  std::optional<tidemark::mpi::persistent_allreduce<std::int64_t>> reduction_;
};

/// The same with malloc. Gradients may move in each step, so each step registers them.
class malloc_memory {
 public:
  static constexpr char const* name = "malloc";

  explicit malloc_memory(tidemark::mpi::dynamic_window const& window) : registrar_{window, registrations_} {}

  template <class Body>
  void step(Body body) {
    body(*std::pmr::new_delete_resource());
  }
  void add_up(gradient_sums sums) {
    const tidemark::byte_range range{reinterpret_cast<std::uintptr_t>(sums.data()), sums.size_bytes()};
    if (!registrar_.on_commit(range)) throw std::runtime_error{registrar_.refusal()};
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_INT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    if (!registrar_.on_decommit(range)) throw std::runtime_error{registrar_.refusal()};
  }
  void check() const {}
  std::size_t registrations() const { return registrations_; }

 private:
  std::size_t registrations_ = 0;
  counted_registrar registrar_;
};

struct outcome {
  double accuracy = 0, loss = 0;
  std::vector<double> steps;  // seconds of each step
  std::size_t registrations = 0, later_registrations = 0,
              later_system_calls = 0;  // later: after the first step
  std::vector<float> parameters;
};

std::int64_t fixed_point(double value) {
  return std::llround(std::clamp(value, -0x1p20, 0x1p20) * fixed_point_one);
}

template <class Memory>
outcome train(options const& chosen, dataset const& data, ranks const& rank, counted_memory& system) {
  const tidemark::mpi::dynamic_window window{MPI_COMM_WORLD};
  Memory memory{window};
  std::mt19937_64 random{chosen.seed};
  network model{false, random, std::pmr::new_delete_resource()};
  std::vector<std::size_t> order(data.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random);
  const auto tests = std::span{order}.last(data.test_count());
  const auto images = std::span{order}.first(order.size() - tests.size());
  const std::size_t shard = chosen.batch / shards_per_batch;
  const std::size_t own_shards = shards_per_batch / static_cast<std::size_t>(rank.all);

  // Calls `use` with the sums over this rank's shards, in memory of the step.
  const auto step = [&](std::span<std::size_t const> batch, auto use) {
    memory.step([&](std::pmr::memory_resource& local) {
      std::pmr::vector<std::int64_t> sums(sums_count, &local);
      for (std::size_t i = 0; i < own_shards; ++i) {
        tape record{local};
        const auto own = batch.subspan((static_cast<std::size_t>(rank.own) * own_shards + i) * shard, shard);
        sums.back() += fixed_point(model.loss(record, data, own).values[0]);
        record.play_backwards();
        auto sum = sums.begin();
        for (tensor* const parameter : model.variables())
          for (float& slope : parameter->gradient) *sum++ += fixed_point(std::exchange(slope, 0.0F));
      }
      use(gradient_sums{sums});
    });
  };
  step(images.first(chosen.batch), [](gradient_sums) {});  // a rehearsal: makes a plan and trains nothing
  memory.check();

  outcome result;
  std::size_t first_registrations = 0, first_calls = 0;
  for (std::size_t epoch = 1; epoch <= chosen.epochs; ++epoch) {
    shuffle(images, random);
    result.loss = 0;
    std::size_t batches = 0;
    for (; (batches + 1) * chosen.batch <= images.size();
         ++batches) {  // remaining images wait for another epoch
      const double begin = seconds_now();
      step(images.subspan(batches * chosen.batch, chosen.batch), [&](gradient_sums sums) {
        memory.add_up(sums);
        const auto mean = [](std::int64_t sum) {
          return static_cast<double>(sum) / (fixed_point_one * double{shards_per_batch});
        };
        auto sum = sums.begin();
        for (tensor* const parameter : model.variables())
          for (float& slope : parameter->gradient) slope = static_cast<float>(mean(*sum++));
        model.update();
        result.loss += mean(*sum);
      });
      result.steps.push_back(seconds_now() - begin);
      if (result.steps.size() == 1) {
        first_registrations = memory.registrations();
        first_calls = system.calls;
      }
    }
    result.loss /= static_cast<double>(batches);
  }
  result.registrations = memory.registrations();
  result.later_registrations = memory.registrations() - first_registrations;
  result.later_system_calls = system.calls - first_calls;
  tape record{*std::pmr::new_delete_resource()};
  result.accuracy = 100 * model.count_right(record, data, tests) / static_cast<double>(tests.size());
  result.parameters = model.parameters();
  return result;
}

/// Returns the FNV-1a hash of the weights' bits.
std::uint64_t hash_of(std::vector<float> const& parameters) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  for (const float value : parameters)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (std::bit_cast<std::uint32_t>(value) >> shift & 0xFF)) * 0x100'0000'01B3u;
  return hash;
}

bool same_on_all_ranks(std::uint64_t value) {
  const std::array<std::size_t, 1> own{value};
  return static_cast<bool>(tidemark::mpi::same_layout(MPI_COMM_WORLD, own));
}

/// @param system_calls number in the steps after the first, or a text
void print_row(char const* name, outcome const& found, std::string const& system_calls) {
  const auto later = static_cast<double>(std::max<std::size_t>(found.steps.size() - 1, 1));
  std::printf("%-14s %6.2f %% %12.1f us %14zu %14.2f %13s %6zu\n", name, found.accuracy,
              1e6 * median(found.steps), found.registrations,
              static_cast<double>(found.later_registrations) / later, system_calls.c_str(),
              sums_count * sizeof(std::int64_t));
}

/// The arguments of one rank: `help` or images.
struct task {
  options chosen;
  dataset data;
};

/// @throws input_error
task read_task(int argc, char** argv, ranks const& rank) {
  const options chosen = parse_options(argc, argv, known_options);
  if (chosen.help) return {chosen, {}};
  if (chosen.batch % shards_per_batch != 0 || chosen.batch > 1000)
    throw input_error{"--batch needs a multiple of 4 from 4 to 1000, not " + std::to_string(chosen.batch) +
                      "."};
  if (shards_per_batch % static_cast<std::size_t>(rank.all) != 0)
    throw input_error{"a batch has 4 shards, so there can be 1, 2 or 4 ranks, not " +
                      std::to_string(rank.all) + "."};
  dataset data = read_digits(chosen.data, *std::pmr::new_delete_resource());
  if (data.size() - data.test_count() < chosen.batch)
    throw input_error{chosen.data + " has fewer images to learn from than a batch."};
  return {chosen, std::move(data)};
}

/// Returns the same task on all ranks. A user error on any rank ends all ranks, and the first such rank
/// prints it.
std::optional<task> agreed_task(int argc, char** argv, ranks const& rank) {
  std::optional<task> found;
  std::string mistake;
  try {
    found = read_task(argc, argv, rank);
  } catch (input_error const& error) {
    mistake = error.what();
  }
  int first = found ? rank.all : rank.own;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == rank.own) std::fprintf(stderr, "data_parallel: %s\n", mistake.c_str());
  if (first < rank.all) found.reset();
  return found;
}

int run(int argc, char** argv) {
  const ranks rank;
  const bool prints = rank.own == 0;
  const std::optional<task> agreed = agreed_task(argc, argv, rank);
  if (!agreed) return 2;
  auto const& [chosen, data] = *agreed;
  if (chosen.help) return prints && std::puts(help_text) < 0 ? 1 : 0;
  counted_memory system;
  tidemark::set_default_os_memory(&system);
  if (prints) {
    std::printf("%d rank%s, batches of %zu in 4 shards, %zu epochs, seed %zu\n\n", rank.all,
                rank.all == 1 ? "" : "s", chosen.batch, chosen.epochs, chosen.seed);
    std::puts("                                               registrations per step   system calls");
    std::puts(
        "gradients in   accuracy   time per step  registrations after the first after the first  bytes");
  }
  const outcome planned = train<planned_memory>(chosen, data, rank, system);
  const outcome by_malloc = train<malloc_memory>(chosen, data, rank, system);
  tidemark::set_default_os_memory(nullptr);
  const std::uint64_t hash = hash_of(planned.parameters);
  const bool same = same_on_all_ranks(hash) && same_on_all_ranks(hash_of(by_malloc.parameters)) &&
                    planned.parameters == by_malloc.parameters;
  if (prints) {
    print_row(planned_memory::name, planned, std::to_string(planned.later_system_calls));
    print_row(malloc_memory::name, by_malloc, "not counted");
    std::printf("\nloss: %.17g\nweights: %016llx, %s\n", planned.loss, static_cast<unsigned long long>(hash),
                same ? "the same on all ranks and in both memories"
                     : "and others on other ranks or in the other memory: that is a bug");
  }
  return same ? 0 : 1;
}

}  // namespace

// A rank with an error exits without MPI_Finalize, which would wait for the other ranks. MPI then ends the
// job.
int main(int argc, char** argv) {
  // Open MPI 4 creates no window on one rank unless its components are listed (open-mpi#10726).
  setenv("OMPI_MCA_osc", "sm,rdma,pt2pt", 0);
  MPI_Init(&argc, &argv);
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) != 0) throw std::runtime_error{"cannot write the output."};
    MPI_Finalize();
    return status;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "data_parallel: %s\n", error.what());
    return 1;
  }
}
