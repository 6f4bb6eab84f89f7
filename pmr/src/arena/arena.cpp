// SPDX-License-Identifier: Apache-2.0
// Arenas that the library instantiates once for all its users. arena_traps.cpp has the arena on virtual
// memory.
#include <tidemark/arena/arena.hpp>

namespace tidemark {

template class detail::arena_state<borrowed_memory>;
template class detail::arena_state<borrowed_device_memory>;
template class detail::arena_state<upstream_memory>;
template class detail::arena_state<upstream_device_memory>;

}  // namespace tidemark
