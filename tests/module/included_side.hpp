// SPDX-License-Identifier: Apache-2.0
// Functions of the including translation unit for the importing one.
#pragma once

#include <cstddef>

#include <tidemark/arena/arena.hpp>

namespace included {

std::size_t allocate_on(tidemark::arena& step, std::size_t bytes);
tidemark::violation_handler violation_handler_there();
tidemark::os_memory* os_memory_there();
tidemark::arena* scratch_arena_there();
int check_level_there();
void exhaust();

}  // namespace included
