// SPDX-License-Identifier: Apache-2.0
// The arenas that the library instantiates once for all its users.
#include <tidemark/arena/arena.hpp>

namespace tidemark {

template class basic_arena<virtual_memory>;
template class basic_arena<borrowed_memory>;
template class basic_arena<borrowed_device_memory>;
template class basic_arena<upstream_memory>;
template class basic_arena<upstream_device_memory>;

}  // namespace tidemark
