// SPDX-License-Identifier: Apache-2.0
#include "included_side.hpp"

#include <tidemark/tidemark.hpp>

namespace included {

std::size_t allocate_on(tidemark::arena& step, std::size_t bytes) {
  (void)step.allocate(bytes);
  return step.position();
}
tidemark::violation_handler violation_handler_there() { return tidemark::get_violation_handler(); }
tidemark::os_memory* os_memory_there() { return &tidemark::default_os_memory(); }
tidemark::arena* scratch_arena_there() { return &tidemark::scratch(tidemark::no_conflicts).arena(); }
int check_level_there() { return tidemark::check_level; }
void exhaust() {
  tidemark::arena fixed{{.reserve = 4096, .growable = false}};
  (void)fixed.allocate(8192);
}

}  // namespace included
