// SPDX-License-Identifier: Apache-2.0
// The arenas that the library instantiates once for all its users; the one on virtual memory is in
// arena_traps.cpp.
#include <tidemark/arena/arena.hpp>

namespace tidemark {

template class detail::arena_state<borrowed_memory>;
template class detail::arena_state<borrowed_device_memory>;
template class detail::arena_state<upstream_memory>;
template class detail::arena_state<upstream_device_memory>;

}  // namespace tidemark
