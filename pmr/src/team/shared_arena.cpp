// SPDX-License-Identifier: Apache-2.0
// The shared arena that the library instantiates once for all its users.
#include <tidemark/team/shared_arena.hpp>

namespace tidemark {

template class detail::arena_state<detail::extent_memory<virtual_memory>>;
template class basic_shared_arena<virtual_memory>;

}  // namespace tidemark
