// SPDX-License-Identifier: Apache-2.0
// Strategy: the loop of the original's README, at its size: 10,000 products of random matrices of 100 x 100.
// Calls of operator new, malloc and the upstream are counted meanwhile. The file is compiled with -O3,
// because it computes 10^10 products of numbers; under sanitizers it takes a hundredth of the steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <numeric>
#include <random>
#include <span>

#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/workspace/extras/random.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "counting_new.hpp"

namespace tidemark {
namespace {

constexpr std::size_t n = 100;

#if TIDEMARK_ASAN
constexpr int steps = 100;
#else
constexpr int steps = 10'000;
#endif

/// Writes A·B to `c`, in an order in which the innermost loop has no gaps.
void multiply(std::span<double const> a, std::span<double const> b, std::span<double> c) {
  std::ranges::fill(c, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) {
      const double factor = a[i * n + k];
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += factor * b[k * n + j];
    }
  }
}

/// The sum of all elements of A·B without the product: sum over k of (column k of A) · (row k of B).
double sum_of_product(std::span<double const> a, std::span<double const> b) {
  double sum = 0;
  for (std::size_t k = 0; k < n; ++k) {
    double column = 0, row = 0;
    for (std::size_t i = 0; i < n; ++i) column += a[i * n + k], row += b[k * n + i];
    sum += column * row;
  }
  return sum;
}

// S4.74
TEST(workspace_heap, ten_thousand_products_of_random_matrices_allocate_nothing) {
  statistics_resource upstream{std::pmr::new_delete_resource()};
  workspace ws{{.upstream = &upstream}};
  std::minstd_rand generator{7};
  double sum = 0, expected = 0;
  const auto step = [&] {
    workspace::scope scope{ws};
    const auto a = acquire_uniform(scope, generator, n, n);
    const auto b = acquire_uniform(scope, generator, n, n);
    const auto c = scope.acquire<double>(n, n);
    multiply(a.elements(), b.elements(), c.elements());
    std::span<double const> const product = c.elements();
    sum += std::accumulate(product.begin(), product.end(), 0.0);
    expected += sum_of_product(a.elements(), b.elements());
  };
  step();
  const std::size_t news = test::news, mallocs = test::mallocs;
  const std::uint64_t allocations = upstream.stats().allocations;
  EXPECT_EQ(allocations, 3u);
  for (int i = 1; i < steps; ++i) step();
  EXPECT_EQ(test::news, news);
  EXPECT_EQ(test::mallocs, mallocs);
  EXPECT_EQ(upstream.stats().allocations, allocations);
  EXPECT_NEAR(sum / expected, 1.0, 1e-12);
  EXPECT_NEAR(sum / steps, n * n * n / 4.0, 2500) << "numbers from 0 to 1, whose products are 1/4 on average";
}

}  // namespace
}  // namespace tidemark
