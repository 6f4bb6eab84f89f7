// SPDX-License-Identifier: Apache-2.0
#include "importing_side.hpp"

import tidemark;

namespace importing {

std::size_t position_of(std::pmr::memory_resource& an_arena) {
  return dynamic_cast<tidemark::arena&>(an_arena).position();
}

void throw_out_of_memory() {
  tidemark::arena fixed{{.reserve = 4096, .growable = false, .name = "imported"}};
  (void)fixed.allocate(8192);
}

}  // namespace importing
