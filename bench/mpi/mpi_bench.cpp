// SPDX-License-Identifier: Apache-2.0
// Topic mpi: rank 0 puts into memory of rank 1 and gets from it. `arena` is a block of an arena that was
// attached to the window once and has a known address. `malloc` is a buffer that rank 1 allocates by malloc,
// attaches, names, detaches and frees for each exchange. Rank 1 answers each exchange. Times are of an
// exchange, by the clock; `registrations` is the number that rank 1 made per exchange.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <tidemark/arena/arena.hpp>
#include <tidemark/mpi.hpp>

namespace {

using namespace tidemark;

using registered_arena = basic_arena<registered_memory<virtual_memory, mpi::window_registrar>>;

/// Requests of rank 0 to rank 1. Rank 1 answers each request with an address or a number.
enum class request : std::int64_t { quit, allocate, malloc, acknowledge, free, count_registrations };

class peer {
 public:
  explicit peer(MPI_Win window) : window_{window} {}

  MPI_Aint request_of(request what, std::size_t bytes = 0) const {
    const std::int64_t order[2] = {static_cast<std::int64_t>(what), static_cast<std::int64_t>(bytes)};
    MPI_Aint address = 0;
    MPI_Sendrecv(order, 2, MPI_INT64_T, 1, 0, &address, 1, MPI_AINT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return address;
  }
  /// Registrations per exchange.
  double registrations_since(MPI_Aint before, benchmark::State const& state) const {
    return static_cast<double>(request_of(request::count_registrations) - before) /
           static_cast<double>(state.iterations());
  }
  template <auto Move>
  void exchange(std::byte* own, MPI_Aint address, std::size_t bytes) const {
    const int n = static_cast<int>(bytes);
    Move(own, n, MPI_BYTE, 1, address, n, MPI_BYTE, window_);
    MPI_Win_flush(1, window_);
  }

 private:
  MPI_Win window_;
};

constexpr auto put = [](auto... arguments) { MPI_Put(arguments...); };
constexpr auto get = [](auto... arguments) { MPI_Get(arguments...); };

template <auto Move>
void in_an_arena(benchmark::State& state, peer const& other) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto own = std::make_unique<std::byte[]>(bytes);
  const MPI_Aint address = other.request_of(request::allocate, bytes);
  const MPI_Aint before = other.request_of(request::count_registrations);
  for (auto _ : state) {
    other.exchange<Move>(own.get(), address, bytes);
    other.request_of(request::acknowledge);
  }
  state.counters["registrations"] = other.registrations_since(before, state);
}

template <auto Move>
void in_a_buffer_of_malloc(benchmark::State& state, peer const& other) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto own = std::make_unique<std::byte[]>(bytes);
  const MPI_Aint before = other.request_of(request::count_registrations);
  for (auto _ : state) {
    other.exchange<Move>(own.get(), other.request_of(request::malloc, bytes), bytes);
    other.request_of(request::free);
  }
  state.counters["registrations"] = other.registrations_since(before, state);
}

/// Runs rank 1. It waits within MPI, so that one-sided operations of rank 0 make progress.
void serve(mpi::dynamic_window const& window) {
  registered_arena arena{
      registered_memory<virtual_memory, mpi::window_registrar>{mpi::window_registrar{window}},
      {.reserve = 16 * MiB, .name = "served"}};
  std::optional<registered_arena::scope> step;
  void* buffer = nullptr;
  MPI_Aint buffers = 0;  // number of attached buffers
  for (;;) {
    std::int64_t order[2];
    MPI_Recv(order, 2, MPI_INT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const auto bytes = static_cast<std::size_t>(order[1]);
    MPI_Aint address = 0;
    switch (static_cast<request>(order[0])) {
      case request::quit:
        return;
      case request::acknowledge:
        break;
      case request::allocate:
        step.reset();
        step.emplace(arena);
        address = mpi::displacement(arena.allocate(bytes));
        break;
      case request::malloc:
        buffer = std::malloc(bytes);
        MPI_Win_attach(window.get(), buffer, static_cast<MPI_Aint>(bytes));
        ++buffers;
        address = mpi::displacement(buffer);
        break;
      case request::count_registrations:
        address = static_cast<MPI_Aint>(arena.space().registrations()) + buffers;
        break;
      case request::free:
        MPI_Win_detach(window.get(), buffer);
        std::free(buffer);
        break;
    }
    MPI_Send(&address, 1, MPI_AINT, 0, 0, MPI_COMM_WORLD);
  }
}

void run_benchmarks(peer const& other) {
  const auto add = [&](char const* name, auto work) {
    benchmark::RegisterBenchmark(name, [=, &other](benchmark::State& state) { work(state, other); })
        ->Arg(4 * KiB)
        ->Arg(64 * KiB)
        ->Arg(1 * MiB)
        ->UseRealTime();
  };
  add("mpi/arena/put", in_an_arena<put>);
  add("mpi/malloc/put", in_a_buffer_of_malloc<put>);
  add("mpi/arena/get", in_an_arena<get>);
  add("mpi/malloc/get", in_a_buffer_of_malloc<get>);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(library, &length);
  benchmark::AddCustomContext("version of MPI", std::string{library, library + length}.substr(0, 40));
  benchmark::Initialize(&count, arguments);
  const bool wrong = ranks != 2 || benchmark::ReportUnrecognizedArguments(count, arguments);
  if (!wrong) {
    const mpi::dynamic_window window{MPI_COMM_WORLD};
    MPI_Win_lock_all(0, window.get());
    if (rank == 0) {
      const peer other{window.get()};
      run_benchmarks(other);
      const std::int64_t order[2] = {static_cast<std::int64_t>(request::quit), 0};
      MPI_Send(order, 2, MPI_INT64_T, 1, 0, MPI_COMM_WORLD);
    } else {
      serve(window);
    }
    MPI_Win_unlock_all(window.get());
  }
  MPI_Finalize();
  return wrong ? 2 : 0;
}
