// SPDX-License-Identifier: Apache-2.0
// Strategy: suggestions are compared with obvious results, and with the least waste found by trying
// everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include <tidemark/core/size_histogram.hpp>
#include <tidemark/pool/pool.hpp>

#include "thread_storm.hpp"

namespace tidemark::test {
namespace {

TEST(size_histogram, suggests_the_sizes_that_are_requested) {
  size_histogram sizes;
  for (int i = 0; i < 100; ++i) sizes.record(100);
  sizes.record(479'232, 10);
  sizes.record(40, 5);
  EXPECT_EQ(sizes.requests(), 115u);
  EXPECT_EQ(sizes.suggest_size_classes(9, 1 * MiB), (std::vector<std::size_t>{48, 112, 479'232}));
}

TEST(size_histogram, joins_the_sizes_that_cost_least) {
  size_histogram sizes;
  sizes.record(64, 1000);
  sizes.record(80, 1);
  sizes.record(1024, 1000);
  EXPECT_EQ(sizes.suggest_size_classes(2), (std::vector<std::size_t>{64, 1024}))
      << "one request of 80 may take 1024";
  EXPECT_EQ(sizes.suggest_size_classes(1), (std::vector<std::size_t>{1024}));
}

TEST(size_histogram, suggests_the_default_classes_when_empty) {
  const size_histogram sizes;
  const pool memory{{.size_classes = sizes.suggest_size_classes()}};
  EXPECT_EQ(memory.options().size_classes, pool{}.options().size_classes);
}

TEST(size_histogram, rejects_an_impossible_number_of_classes) {
  size_histogram sizes;
  EXPECT_THROW((void)sizes.suggest_size_classes(0), std::invalid_argument);
  EXPECT_THROW((void)sizes.suggest_size_classes(97), std::invalid_argument);
}

using request_counts = std::map<std::size_t, std::uint64_t>;

// Bytes that blocks of these classes waste. @pre the largest class serves each request
std::uint64_t wasted_bytes(request_counts const& requests, std::vector<std::size_t> const& classes) {
  std::uint64_t wasted = 0;
  for (auto const& [bytes, count] : requests)
    wasted += (*std::ranges::lower_bound(classes, bytes) - bytes) * count;
  return wasted;
}

// Every choice of classes among the sizes, the largest being one.
std::uint64_t least_waste_by_trying(request_counts const& requests, std::vector<std::size_t> const& sizes,
                                    std::size_t max_count) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t choice = 0; choice < 1u << (sizes.size() - 1); ++choice) {
    std::vector<std::size_t> classes;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      if ((choice >> i & 1) != 0) classes.push_back(sizes[i]);
    }
    classes.push_back(sizes.back());
    if (classes.size() <= max_count) least = std::min(least, wasted_bytes(requests, classes));
  }
  return least;
}

// S2.23
TEST(size_histogram, suggests_classes_with_the_least_waste) {
  std::mt19937_64 random{7};
  for (int round = 0; round < 40; ++round) {
    size_histogram histogram;
    request_counts requests;
    std::set<std::size_t> rounded;
    for (int i = 0; i < 10; ++i) {
      const std::size_t bytes = 1 + random() % 4000;
      const std::uint64_t count = 1 + random() % 100;
      histogram.record(bytes, count);
      requests[bytes] += count;
      rounded.insert(std::max<std::size_t>(32, (bytes + 15) / 16 * 16));
    }
    const std::vector<std::size_t> sizes(rounded.begin(), rounded.end());
    for (std::size_t count = 1; count <= 6; ++count) {
      const std::vector<std::size_t> suggested = histogram.suggest_size_classes(count);
      EXPECT_LE(suggested.size(), count);
      EXPECT_EQ(wasted_bytes(requests, suggested), least_waste_by_trying(requests, sizes, count));
    }
  }
}

// S2.23
TEST(size_histogram, a_fitted_pool_wastes_less_on_the_same_requests) {
  std::mt19937_64 random{1};
  std::vector<std::size_t> requests;
  size_histogram sizes;
  for (int i = 0; i < 2000; ++i) {
    requests.push_back(random() % 3 == 0 ? 72 : 520 + random() % 40);
    sizes.record(requests.back());
  }
  const auto waste = [&](pool_options const& options) {
    pool memory{options};
    for (std::size_t bytes : requests) (void)memory.allocate(bytes);
    const pool_stats stats = memory.stats();
    memory.release();
    return stats.used_bytes - stats.requested_bytes;
  };
  EXPECT_LT(10 * waste({.size_classes = sizes.suggest_size_classes(4)}),
            waste(pool_options::tensor_classes()));
}

TEST(size_histogram, counts_the_requests_of_all_threads) {
  size_histogram sizes;
  on_threads([&](std::size_t) {
    for (std::size_t i = 0; i < 1000; ++i) sizes.record(i);
  });
  EXPECT_EQ(sizes.requests(), 1000 * storm_threads);
}

}  // namespace
}  // namespace tidemark::test
