// SPDX-License-Identifier: Apache-2.0
#include <thrust/device_vector.h>
#include <thrust/sort.h>

#include <cstdio>

import tidemark.arena;
import tidemark.thrust;

int sum(tidemark::device_vector<int> const& numbers, tidemark::arena& temporaries);

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::device_vector<int> numbers({3, 1, 2}, &step);
  thrust::sort(tidemark::par(step), numbers.begin(), numbers.end());
  std::printf("%d %d %d, %d\n", int{numbers[0]}, int{numbers[1]}, int{numbers[2]}, sum(numbers, step));
}
