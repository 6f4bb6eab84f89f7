// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <vector>

#include <tidemark/arena/arena.hpp>

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  std::pmr::vector<int> v({1, 2, 3}, &step);
  std::printf("%d %d\n", v[2], step.owns(v.data()));
}
