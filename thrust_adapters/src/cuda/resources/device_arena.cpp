// SPDX-License-Identifier: Apache-2.0
// The instantiations of the arenas of the device part for all users of the library.
#include <tidemark/cuda/resources/device_arena.hpp>

#include <tidemark/cuda/resources/device_planned_arena.hpp>

namespace tidemark {

template class detail::arena_state<gpu::virtual_memory>;
template class detail::arena_state<gpu::device_memory>;
template class detail::arena_state<gpu::pinned_memory>;
template class detail::arena_state<gpu::managed_memory>;
template class basic_planned_arena<upstream_device_memory>;

}  // namespace tidemark
