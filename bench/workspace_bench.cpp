// SPDX-License-Identifier: Apache-2.0
// Topic workspace: a function that is called repeatedly and needs arrays, from a workspace, from the heap, or
// from resources of the standard library. All check levels are 0 in any configuration. "nothing" is the loop
// alone, for the cost of the workspace itself.
#include <benchmark/benchmark.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace {

using namespace tidemark;
using plain_workspace = basic_workspace<0>;

void use(void const* block) {
  asm volatile("" : : "r"(block) : "memory");  // DoNotOptimize would also write the pointer to memory
}

template <class T>
T* hidden(T* pointer) {
  benchmark::DoNotOptimize(pointer);
  return pointer;
}

/// Numbers of elements that the compiler does not know.
struct amounts {
  amounts() { benchmark::DoNotOptimize(*this); }
  std::size_t a = 100, b = 200, c = 300;
};

/// Counts the heap allocations of a warm workspace or another source of memory.
class counting_resource final : public std::pmr::memory_resource {
 public:
  std::size_t allocations = 0, bytes = 0;

  void begin() { allocations = bytes = 0; }
  /// Reports the counts since `begin`, per iteration and per 100 iterations.
  void report(benchmark::State& state) const {
    const auto turns = static_cast<double>(state.iterations());
    state.counters["allocations"] = static_cast<double>(allocations) / turns;
    state.counters["bytes_per_100"] = 100 * static_cast<double>(bytes) / turns;
  }

 private:
  void* do_allocate(std::size_t n, std::size_t align) override {
    ++allocations;
    bytes += n;
    return std::pmr::new_delete_resource()->allocate(n, align);
  }
  void do_deallocate(void* block, std::size_t n, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, n, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

/// Options of a workspace whose allocations `heap` counts.
workspace_options counted_by(counting_resource& heap, unsigned cache_ways = 4) {
  return {.cache_ways = cache_ways, .bookkeeping = &heap, .upstream = &heap};
}

/// Runs `turn` once, then repeatedly while heap allocations are counted.
template <class Turn>
void run_warm(benchmark::State& state, counting_resource& heap, Turn turn) {
  turn();
  heap.begin();
  for (auto _ : state) turn();
  heap.report(state);
}

// ---- a scope ----------------------------------------------------------------------------------------------

void nothing(benchmark::State& state) {
  const amounts n;
  for (auto _ : state) use(&n);
}

template <class Scope>
void acquire_three(Scope& scope, amounts const& n) {
  use(scope.template acquire<double>(n.a).data());
  use(scope.template acquire<double>(n.b).data());
  use(scope.template acquire<double>(n.c).data());
}

template <class... Types>
void scope_of_three(benchmark::State& state) {
  counting_resource heap;
  plain_workspace made{counted_by(heap)};
  plain_workspace& ws = *hidden(&made);
  const amounts n;
  run_warm(state, heap, [&] {
    plain_workspace::scope<Types...> scope{ws};
    acquire_three(scope, n);
  });
}

/// All types that have their own lists.
template <class... Types>
void scope_of_eight(benchmark::State& state) {
  counting_resource heap;
  plain_workspace made{counted_by(heap)};
  plain_workspace& ws = *hidden(&made);
  const amounts n;
  run_warm(state, heap, [&] {
    plain_workspace::scope<Types...> scope{ws};
    use(scope.template acquire<double>(n.a).data());
    use(scope.template acquire<float>(n.a).data());
    use(scope.template acquire<std::int64_t>(n.a).data());
    use(scope.template acquire<std::int32_t>(n.a).data());
    use(scope.template acquire<std::complex<float>>(n.a).data());
    use(scope.template acquire<std::complex<double>>(n.a).data());
    use(scope.template acquire<bool>(n.a).data());
    use(scope.bits(n.a).words().data());
  });
}

/// Opens and closes a scope that names the eight types and uses none.
template <class... Types>
void empty_scope(benchmark::State& state) {
  plain_workspace made;
  plain_workspace& ws = *hidden(&made);
  for (auto _ : state) {
    const plain_workspace::scope<Types...> scope{ws};
    use(&ws);
  }
}

template <std::size_t Number>
struct other_element {
  int value;
};
template <std::size_t... Numbers>
void register_others(plain_workspace& ws, std::index_sequence<Numbers...>) {
  plain_workspace::scope<> scope{ws};
  (use(scope.acquire<other_element<Numbers>>(10).data()), ...);
}

// A thousand types compile for 40 s. Builds that only test the benchmarks have a tenth of them.
#ifdef NDEBUG
constexpr std::size_t many_types = 1000;
#else
constexpr std::size_t many_types = 100;
#endif

/// A scope of one type on a workspace that knows `Others` other types.
template <std::size_t Others>
void scope_beside(benchmark::State& state) {
  plain_workspace made;
  register_others(made, std::make_index_sequence<Others>{});
  plain_workspace& ws = *hidden(&made);
  const amounts n;
  for (auto _ : state) {
    plain_workspace::scope<> scope{ws};
    acquire_three(scope, n);
  }
}

// The same three arrays from other sources.

void three_vectors(benchmark::State& state) {
  const amounts n;
  for (auto _ : state) {
    for (const std::size_t length : {n.a, n.b, n.c}) use(std::vector<double>(length).data());
  }
}

void three_of_heap(benchmark::State& state) {
  const amounts n;
  for (auto _ : state) {
    const auto a = std::make_unique_for_overwrite<double[]>(n.a);
    const auto b = std::make_unique_for_overwrite<double[]>(n.b);
    const auto c = std::make_unique_for_overwrite<double[]>(n.c);
    use(a.get());
    use(b.get());
    use(c.get());
  }
}

void three_of_monotonic(benchmark::State& state) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(64 * KiB);
  std::pmr::monotonic_buffer_resource resource{buffer.get(), 64 * KiB};
  std::pmr::memory_resource* const through_vtable = hidden<std::pmr::memory_resource>(&resource);
  const amounts n;
  for (auto _ : state) {
    for (const std::size_t length : {n.a, n.b, n.c})
      use(through_vtable->allocate(length * sizeof(double), 64));
    resource.release();
  }
}

void three_of_arena(benchmark::State& state) {
  arena made;
  arena& step = *hidden(&made);
  const amounts n;
  for (auto _ : state) {
    const arena::scope scope{step};
    for (const std::size_t length : {n.a, n.b, n.c}) use(step.allocate(length * sizeof(double), 64));
  }
}

BENCHMARK(nothing)->Name("workspace/nothing");
BENCHMARK(scope_of_three<double>)->Name("workspace/scope_of_3/typed");
BENCHMARK(scope_of_three<>)->Name("workspace/scope_of_3/any_type");
BENCHMARK(scope_of_eight<double, float, std::int64_t, std::int32_t, std::complex<float>, std::complex<double>,
                         bool, packed_bits>)
    ->Name("workspace/all_types/typed");
BENCHMARK(scope_of_eight<>)->Name("workspace/all_types/any_type");
BENCHMARK(empty_scope<double, float, std::int64_t, std::int32_t, std::complex<float>, std::complex<double>,
                      bool, packed_bits>)
    ->Name("workspace/empty_scope/all_types");
BENCHMARK(empty_scope<>)->Name("workspace/empty_scope/any_type");
BENCHMARK(scope_beside<0>)->Name("workspace/scope_beside/0");
BENCHMARK(scope_beside<many_types>)->Name("workspace/scope_beside/1000");
BENCHMARK(three_vectors)->Name("workspace/scope_of_3/vectors");
BENCHMARK(three_of_heap)->Name("workspace/scope_of_3/heap");
BENCHMARK(three_of_monotonic)->Name("workspace/scope_of_3/monotonic");
BENCHMARK(three_of_arena)->Name("workspace/scope_of_3/arena");

// ---- shapes that take turns -------------------------------------------------------------------------------

/// A turn uses each of several shapes once, as views.
void views(benchmark::State& state) {
  counting_resource heap;
  plain_workspace made{counted_by(heap)};
  plain_workspace& ws = *hidden(&made);
  const auto shapes = static_cast<std::size_t>(state.range(0));
  run_warm(state, heap, [&] {
    for (std::size_t i = 1; i <= shapes; ++i) {
      plain_workspace::scope<double> scope{ws};
      use(scope.acquire<double>(10 * i, 10).data());
    }
  });
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

/// The same with headers of DLPack, of which `cache_ways` are kept per slot.
void tensors(benchmark::State& state, unsigned cache_ways) {
  counting_resource heap;
  plain_workspace made{counted_by(heap, cache_ways)};
  plain_workspace& ws = *hidden(&made);
  const auto shapes = static_cast<std::size_t>(state.range(0));
  run_warm(state, heap, [&] {
    for (std::size_t i = 1; i <= shapes; ++i) {
      plain_workspace::scope<double> scope{ws};
      use(acquire_tensor<double>(scope, 10 * i, 10));
    }
  });
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(views)->Name("workspace/shapes/views")->Arg(1)->Arg(3)->Arg(5);
BENCHMARK_CAPTURE(tensors, four_ways, 4)->Name("workspace/shapes/tensors")->Arg(1)->Arg(3)->Arg(5);
BENCHMARK_CAPTURE(tensors, unlimited, unlimited_cache_ways)
    ->Name("workspace/shapes/tensors_unlimited")
    ->Arg(3)
    ->Arg(5)
    ->Arg(20);

// ---- a small program --------------------------------------------------------------------------------------

/// Fills A and B with random numbers, computes their product C, and returns the sum of C. The plain loops are
/// equal for every source.
template <std::size_t Size>
double multiply(std::mt19937_64& generator, std::span<double> a, std::span<double> b, std::span<double> c) {
  // Random bits are cheaper than a distribution, so memory takes a larger share of the time.
  const auto draw = [&] { return static_cast<double>(generator() >> 11) * 0x1p-53; };
  for (double& element : a) element = draw();
  for (double& element : b) element = draw();
  for (double& element : c) element = 0;
  for (std::size_t i = 0; i < Size; ++i) {
    for (std::size_t k = 0; k < Size; ++k) {
      const double factor = a[i * Size + k];
      for (std::size_t j = 0; j < Size; ++j) c[i * Size + j] += factor * b[k * Size + j];
    }
  }
  return std::accumulate(c.begin(), c.end(), 0.0);
}

template <std::size_t Size>
void product_on_workspace(benchmark::State& state) {
  counting_resource heap;
  plain_workspace ws{counted_by(heap)};
  std::mt19937_64 generator;
  run_warm(state, heap, [&] {
    plain_workspace::scope<double> scope{ws};
    const auto a = scope.acquire<double>(Size, Size);
    const auto b = scope.acquire<double>(Size, Size);
    const auto c = scope.acquire<double>(Size, Size);
    benchmark::DoNotOptimize(multiply<Size>(generator, a.elements(), b.elements(), c.elements()));
  });
}

/// A turn allocates from `resource` and ends with `after`. A std::vector first writes zeros, unlike a
/// workspace; its user pays for these.
template <std::size_t Size>
void product_on_vectors(benchmark::State& state, counting_resource& heap, std::pmr::memory_resource& resource,
                        auto after) {
  std::mt19937_64 generator;
  run_warm(state, heap, [&] {
    {
      std::pmr::vector<double> a(Size * Size, &resource), b(Size * Size, &resource),
          c(Size * Size, &resource);
      benchmark::DoNotOptimize(multiply<Size>(generator, a, b, c));
    }
    after();
  });
}

template <std::size_t Size>
void product_on_heap(benchmark::State& state) {
  counting_resource heap;
  product_on_vectors<Size>(state, heap, heap, [] {});
}

template <std::size_t Size>
void product_on_monotonic(benchmark::State& state) {
  constexpr std::size_t room = 3 * Size * Size * sizeof(double) + 1 * KiB;
  counting_resource heap;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  std::pmr::monotonic_buffer_resource resource{buffer.get(), room, &heap};
  product_on_vectors<Size>(state, heap, resource, [&] { resource.release(); });
}

template <std::size_t Size>
void product_on_std_pool(benchmark::State& state) {
  counting_resource heap;
  std::pmr::unsynchronized_pool_resource resource{&heap};
  product_on_vectors<Size>(state, heap, resource, [] {});
}

BENCHMARK(product_on_workspace<100>)->Name("workspace/product/100");
BENCHMARK(product_on_heap<100>)->Name("vectors_on_heap/product/100");
BENCHMARK(product_on_monotonic<100>)->Name("vectors_on_monotonic/product/100");
BENCHMARK(product_on_std_pool<100>)->Name("vectors_on_std_pool/product/100");
BENCHMARK(product_on_workspace<10>)->Name("workspace/product/10");
BENCHMARK(product_on_heap<10>)->Name("vectors_on_heap/product/10");
BENCHMARK(product_on_monotonic<10>)->Name("vectors_on_monotonic/product/10");
BENCHMARK(product_on_std_pool<10>)->Name("vectors_on_std_pool/product/10");

}  // namespace
