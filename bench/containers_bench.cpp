// SPDX-License-Identifier: Apache-2.0
// Topic containers: the twelve data structures of N4468 (Lakos and others: On Quantifying Allocation
// Strategies). Each is a vector or an unordered_set of ints, of strings, or of vectors or sets of these,
// built and dropped in each round. An item is an element of the outermost container.
//
// As in the study, the outermost container knows its size in advance. Strings are random texts of 33 to 1000
// characters. Inner containers have 128 elements and are copies of one container. A set of containers
// identifies its elements by address, so that the benchmark measures allocation and not hashing.
//
// Names: `arena` runs all destructors, then a scope rewinds the arena. `arena_winked_out` makes the container
// in the arena and rewinds over it, without destructors. `std_monotonic` does the same on one buffer that all
// rounds share, and never uses its upstream. `pool` and `std_pool` have default options. `pool_keeping_all`
// keeps free blocks without limit, like std's pool. All live across rounds, and run one round before the
// measurement.
//
// Sizes whose round requests more than 128 MiB are omitted, because they take long and add no information.
// Containers of containers of strings go up to 2^10, of sets of ints up to 2^14, all others up to 2^16.
//
// The number of rounds is fixed: about 4 ms, or one round. The topic has as many benchmarks as all others
// together, and thus takes no longer than these.
#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;
using bench::hidden;

constexpr std::array<std::size_t, 6> sizes{64, 256, 1024, 4096, 16384, 65536};
constexpr std::size_t inner_elements = 128;
constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t max_round_bytes = 128 * MiB;
constexpr std::size_t monotonic_bytes = 160 * MiB;  // for requests and alignment

// ---- the data structures ----

/// Hash and equality by identity.
struct by_address {
  std::size_t operator()(auto const& element) const noexcept {
    return reinterpret_cast<std::uintptr_t>(&element);
  }
  bool operator()(auto const& a, auto const& b) const noexcept { return &a == &b; }
};

using string = std::pmr::string;
template <class Element>
using vector = std::pmr::vector<Element>;
template <class Element>
using set = std::pmr::unordered_set<Element>;
template <class Element>
using set_by_address = std::pmr::unordered_set<Element, by_address, by_address>;

/// Values of elements, in the same order after each `restart`: for ints 0, 1, 2, ...
template <class Element>
class values {
 public:
  void restart() { next_ = 0; }
  [[nodiscard]] int next() { return next_++; }

 private:
  int next_ = 0;
};

/// Random characters; texts are parts of them.
class random_characters {
 public:
  static constexpr std::size_t count = 64 * KiB;

  random_characters() : characters_(count, ' ') {
    std::minstd_rand random;
    for (char& character : characters_) character = static_cast<char>('!' + random() % ('~' - '!' + 1));
  }
  [[nodiscard]] std::string_view text(std::size_t first, std::size_t length) const {
    return std::string_view{characters_}.substr(first, length);
  }

 private:
  std::string characters_;
};

template <>
class values<string> {
 public:
  void restart() { random_ = {}; }
  [[nodiscard]] std::string_view next() {
    static const random_characters characters;
    const std::size_t length = min_length + random_() % (max_length - min_length + 1);
    return characters.text(random_() % (random_characters::count - max_length), length);
  }

 private:
  static constexpr std::size_t min_length = 33, max_length = 1000;
  std::minstd_rand random_;
};

/// Fills the empty `container` with this many elements.
template <class Container>
void fill(Container& container, std::size_t elements, values<typename Container::value_type>& from) {
  from.restart();
  container.reserve(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    if constexpr (requires { container.emplace_back(from.next()); }) container.emplace_back(from.next());
    else container.emplace(from.next());  // insert would confuse a value's address with the element's
  }
}

/// For containers: one prototype to copy.
template <class Container>
  requires requires { typename Container::value_type; }
class values<Container> {
 public:
  values() {
    values<typename Container::value_type> inner;
    fill(prototype_, inner_elements, inner);
  }
  void restart() {}
  [[nodiscard]] Container const& next() { return prototype_; }

 private:
  Container prototype_{std::pmr::new_delete_resource()};
};

// ---- the requests of a round ----

struct demand {
  std::size_t bytes = 0, blocks = 0;
};

class counting_resource final : public std::pmr::memory_resource {
 public:
  [[nodiscard]] demand const& total_demand() const { return demand_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    demand_.bytes += bytes;
    ++demand_.blocks;
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  demand demand_;
};

/// Returns the requests of a round, extrapolated from the reservation for all elements and from the first
/// elements.
template <class Container>
demand demand_of(std::size_t elements, values<typename Container::value_type>& from) {
  constexpr std::size_t few = 16;
  counting_resource of_room, of_room_for_few, of_few;
  Container{&of_room}.reserve(elements);
  Container{&of_room_for_few}.reserve(few);
  Container counted{&of_few};
  fill(counted, few, from);
  const auto of_all = [&](std::size_t demand::* what) {
    return of_room.total_demand().*what +
           (of_few.total_demand().*what - of_room_for_few.total_demand().*what) * elements / few;
  };
  return {of_all(&demand::bytes), of_all(&demand::blocks)};
}

/// Returns the number of measured rounds: a power of two, so that details of the containers do not change it.
std::int64_t rounds_for(demand const& round) {
  constexpr double block_ns = 20, byte_ns = 1.0 / 16, run_ns = 4e6;  // approximate
  const double round_ns =
      block_ns * static_cast<double>(round.blocks) + byte_ns * static_cast<double>(round.bytes);
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(run_ns / round_ns) | 1));
}

// ---- rounds ----

/// Builds a container. Never inlined, so that all resources are called by the same code.
template <class Container>
class work {
 public:
  explicit work(std::size_t elements) : elements_{elements} {}

  [[gnu::noinline]] void build_and_destroy(std::pmr::memory_resource* resource) {
    Container container{resource};
    fill(container, elements_, from_);
    bench::keep(&container);
  }
  [[gnu::noinline]] void build(std::pmr::memory_resource* resource) {
    auto* const container =
        new (resource->allocate(sizeof(Container), alignof(Container))) Container{resource};
    fill(*container, elements_, from_);
    bench::keep(container);
  }

 private:
  std::size_t elements_;
  values<typename Container::value_type> from_;
};

/// Runs one round to warm the memory, then the measured rounds.
template <class Container>
void measure(benchmark::State& state, std::size_t elements, auto round) {
  work<Container> container{elements};
  round(container);
  for (auto _ : state) round(container);
  bench::count_items(state, elements);
}

template <class Container>
void on_arena(benchmark::State& state, std::size_t elements) {
  arena step;
  measure<Container>(state, elements, [&](auto& container) {
    const arena::scope scope{step};
    container.build_and_destroy(hidden(&step));
  });
}

template <class Container>
void on_arena_winked_out(benchmark::State& state, std::size_t elements) {
  arena step;
  measure<Container>(state, elements, [&](auto& container) {
    const arena::scope scope{step};
    container.build(hidden(&step));
  });
}

/// Never initialized as a whole, so that only used parts take pages.
std::byte* monotonic_buffer() {
  static const auto buffer = std::make_unique_for_overwrite<std::byte[]>(monotonic_bytes);
  return buffer.get();
}

template <class Container>
void on_monotonic(benchmark::State& state, std::size_t elements) {
  std::pmr::monotonic_buffer_resource step{monotonic_buffer(), monotonic_bytes,
                                           std::pmr::null_memory_resource()};
  measure<Container>(state, elements, [&](auto& container) {
    container.build_and_destroy(hidden(&step));
    step.release();
  });
}

template <class Container>
void on_monotonic_winked_out(benchmark::State& state, std::size_t elements) {
  std::pmr::monotonic_buffer_resource step{monotonic_buffer(), monotonic_bytes,
                                           std::pmr::null_memory_resource()};
  measure<Container>(state, elements, [&](auto& container) {
    container.build(hidden(&step));
    step.release();
  });
}

template <class Container>
void on(benchmark::State& state, std::size_t elements, std::pmr::memory_resource& resource) {
  measure<Container>(state, elements,
                     [&](auto& container) { container.build_and_destroy(hidden(&resource)); });
}

template <class Container>
void on_pool(benchmark::State& state, std::size_t elements, std::size_t max_cached_bytes) {
  pool blocks{{.max_cached_bytes = max_cached_bytes}};
  on<Container>(state, elements, blocks);
}

// ---- all of them ----

bool is_measured(bench::peer const& peer) {
  return peer.name == "std_pool" ||
         peer.name.find("malloc") != std::string::npos;  // the C library's malloc and its replacements
}

template <class Container>
void add_structure(std::string const& name) {
  values<typename Container::value_type> from;
  for (const std::size_t elements : sizes) {
    const demand round = demand_of<Container>(elements, from);
    if (round.bytes > max_round_bytes) break;
    const auto add = [&](std::string const& subject, auto measured) {
      benchmark::RegisterBenchmark((subject + "/containers/" + name + '/' + std::to_string(elements)).c_str(),
                                   measured)
          ->Iterations(rounds_for(round));
    };
    add("arena", [elements](benchmark::State& state) { on_arena<Container>(state, elements); });
    add("arena_winked_out",
        [elements](benchmark::State& state) { on_arena_winked_out<Container>(state, elements); });
    add("std_monotonic", [elements](benchmark::State& state) { on_monotonic<Container>(state, elements); });
    add("std_monotonic_winked_out",
        [elements](benchmark::State& state) { on_monotonic_winked_out<Container>(state, elements); });
    add("pool", [elements](benchmark::State& state) {
      on_pool<Container>(state, elements, pool_options{}.max_cached_bytes);
    });
    add("pool_keeping_all",
        [elements](benchmark::State& state) { on_pool<Container>(state, elements, no_limit); });
    for (bench::peer const& peer : bench::peers()) {
      if (!is_measured(peer)) continue;
      add(peer.name,
          [elements, &peer](benchmark::State& state) { on<Container>(state, elements, *peer.make()); });
    }
  }
}

const bool registered = [] {
  add_structure<vector<int>>("vector_of_int");
  add_structure<vector<string>>("vector_of_string");
  add_structure<set<int>>("unordered_set_of_int");
  add_structure<set<string>>("unordered_set_of_string");
  add_structure<vector<vector<int>>>("vector_of_vector_of_int");
  add_structure<vector<vector<string>>>("vector_of_vector_of_string");
  add_structure<vector<set<int>>>("vector_of_unordered_set_of_int");
  add_structure<vector<set<string>>>("vector_of_unordered_set_of_string");
  add_structure<set_by_address<vector<int>>>("unordered_set_of_vector_of_int");
  add_structure<set_by_address<vector<string>>>("unordered_set_of_vector_of_string");
  add_structure<set_by_address<set<int>>>("unordered_set_of_unordered_set_of_int");
  add_structure<set_by_address<set<string>>>("unordered_set_of_unordered_set_of_string");
  return true;
}();

}  // namespace
