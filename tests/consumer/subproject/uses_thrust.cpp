// SPDX-License-Identifier: Apache-2.0
#include <thrust/sort.h>

#include <cstdio>

#include <tidemark/arena/arena.hpp>
#include <tidemark/thrust.hpp>

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::device_vector<int> numbers({3, 1, 2}, &step);
  thrust::sort(tidemark::par(step), numbers.begin(), numbers.end());
  std::printf("%d %d %d\n", int{numbers[0]}, int{numbers[1]}, int{numbers[2]});
}
