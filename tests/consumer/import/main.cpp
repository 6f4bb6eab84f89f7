// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

import tidemark;

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena_scope scope{step};
  std::pmr::vector<int> v({1, 2, 3}, &step);
  const std::span<double> x = scope.push_array<double>(4);
  std::printf("C++%ld: %d %g %d\n", __cplusplus / 100 % 100, v[2], x[3], step.owns(v.data()));
}
