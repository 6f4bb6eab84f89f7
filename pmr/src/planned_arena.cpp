// SPDX-License-Identifier: Apache-2.0
#include <tidemark/planned_arena.hpp>

namespace tidemark {
template class basic_planned_arena<virtual_memory>;
}  // namespace tidemark
