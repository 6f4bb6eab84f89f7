// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

import tidemark.arena;

#ifdef __STRICT_ANSI__
constexpr char const* extensions = "without extensions";
#else
constexpr char const* extensions = "with extensions";
#endif

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  std::printf("C++%ld %s, %d\n", __cplusplus / 100 % 100, extensions, step.owns(step.allocate(8)));
}
