// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <list>

#include "memory.hpp"

#if defined(__cpp_exceptions)
#error "this file is to be compiled with -fno-exceptions"
#endif

int main() {
  std::pmr::list<int> numbers({1, 2, 3, 4, 5}, &program_memory());
  std::printf("%llu on a pool\n", program_blocks());
}
