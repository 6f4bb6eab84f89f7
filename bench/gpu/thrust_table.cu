// SPDX-License-Identifier: Apache-2.0
// A pipeline of Thrust's algorithms, a group-by of n keys, for each memory of its vectors and temporaries.
// Prints the table for docs/gpu.md.
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>

#include <cstddef>
#include <cstdio>
#include <cuda/std/functional>
#include <exception>

#include <tidemark/cuda.hpp>
#include <tidemark/thrust.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;

constexpr int iterations = 40;

struct key_of {
  __host__ __device__ unsigned operator()(std::size_t i) const {
    const unsigned mixed = static_cast<unsigned>(i) * 2654435761u;
    return (mixed ^ mixed >> 15) % 4096;
  }
};

/// Sums the values of each key, and then all sums. The vectors and the temporaries of the algorithms are
/// `Vector`'s and the policy's.
template <template <class> class Vector, class Policy, class... Memory>
double sum_by_key(std::size_t n, Policy policy, Memory... memory) {
  Vector<unsigned> keys(n, memory...), groups(n, memory...);
  Vector<float> values(n, memory...), sums(n, memory...);
  thrust::tabulate(policy, keys.begin(), keys.end(), key_of{});
  thrust::sequence(policy, values.begin(), values.end(), 0.0f, 0.001f);
  thrust::sort_by_key(policy, keys.begin(), keys.end(), values.begin());
  const auto ends =
      thrust::reduce_by_key(policy, keys.begin(), keys.end(), values.begin(), groups.begin(), sums.begin());
  thrust::inclusive_scan(policy, sums.begin(), ends.second, sums.begin());
  return thrust::reduce(policy, sums.begin(), ends.second, 0.0, cuda::std::plus<double>{});
}

template <class T>
using thrusts_vector = thrust::device_vector<T>;
template <class T>
using tidemarks_vector = device_vector<T>;

template <class Iteration>
void row(std::size_t n, char const* name, Iteration iteration) {
  double result = 0;
  for (int i = 0; i < 3; ++i) result = iteration();
  const std::vector<double> taken = test::sorted_ns(iterations, 1, [&] { result = iteration(); });
  std::printf("| %zu | %s | %.0f | %.0f | %g |\n", n, name, taken[iterations / 2] / 1e3,
              taken[iterations * 9 / 10] / 1e3, result);
  std::fflush(stdout);
}

template <class Resource>
void row_of(std::size_t n, char const* name, Resource& memory) {
  row(n, name, [&] { return sum_by_key<tidemarks_vector>(n, par(memory), &memory); });
}

void rows(std::size_t n) {
  const gpu::stream stream;
  row(n, "Thrust alone", [&] { return sum_by_key<thrusts_vector>(n, thrust::device); });
  device_arena step{{.reserve = 4 * GiB, .name = "step"}, stream.get()};
  row(n, "`device_arena`", [&] {
    const device_arena::scope scope{step};
    return sum_by_key<tidemarks_vector>(n, par(step), &step);
  });
  device_pool pool{{.stream = stream}};
  row_of(n, "`device_pool`", pool);
  device_cache cache{{.stream = stream}};
  row_of(n, "`device_cache`", cache);
  gpu::memory_pool driver_pool;
  gpu::async_resource async{driver_pool, stream};
  row_of(n, "cudaMallocAsync (`gpu::async_resource`)", async);
}

}  // namespace

int main() {
  if (!test::found_device("thrust")) return test::skipped;
  try {
    std::puts("| keys | memory | median us | p90 us | result |\n|---|---|---|---|---|");
    for (const std::size_t n : {1'000, 100'000, 10'000'000}) rows(n);
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "thrust: %s\n", error.what());
    return 1;
  }
}
