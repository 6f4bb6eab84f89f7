// SPDX-License-Identifier: Apache-2.0
// Strategy: every header, and the main types with containers of clang's own standard library, are compiled.
#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

bool serves_its_containers();

namespace {

int failures = 0;

void expect(bool holds, char const* what) {
  if (holds) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

int sum_on(std::pmr::memory_resource& memory) {
  std::pmr::vector<int> numbers(100, &memory);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::pmr::string text("a string that is too long to lie in itself", &memory);
  return std::accumulate(numbers.begin(), numbers.end(), 0) + static_cast<int>(text.size());
}

}  // namespace

bool serves_its_containers() {
  constexpr int sum = 5050 + 42;
  tidemark::arena step;
  tidemark::pool blocks;
  tidemark::synchronized_pool shared;
  tidemark::epoch_resource phases{&blocks};
  tidemark::compat::unsynchronized_pool_resource standard;
  for (auto [memory, name] : {std::pair<std::pmr::memory_resource*, char const*>{&step, "arena"},
                              {&blocks, "pool"},
                              {&shared, "synchronized_pool"},
                              {&phases, "epoch_resource"},
                              {&standard, "compat::unsynchronized_pool_resource"}}) {
    expect(sum_on(*memory) == sum, name);
  }
  tidemark::buffer<int> kept = tidemark::with_epoch(phases, "step", [&] {
    tidemark::buffer<int> result{phases, 3};
    result[2] = 7;
    return result;
  });
  expect(kept[2] == 7, "what an epoch keeps has its contents");
  return failures == 0;
}
