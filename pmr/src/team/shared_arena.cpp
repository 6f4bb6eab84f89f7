// SPDX-License-Identifier: Apache-2.0
// The instantiation of the shared arena for all users of the library.
#include <tidemark/team/shared_arena.hpp>

namespace tidemark {

template class detail::arena_state<detail::extent_memory<virtual_memory>>;
template class detail::arena_state<detail::region_memory<virtual_memory>>;
template class detail::shared_arena_state<virtual_memory>;
template class basic_shared_arena<virtual_memory>;

}  // namespace tidemark
