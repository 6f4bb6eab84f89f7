// SPDX-License-Identifier: Apache-2.0
// The arenas of the device part, instantiated once for all its users.
#include <tidemark/cuda/resources/device_arena.hpp>

namespace tidemark {

template class basic_arena<gpu::virtual_memory>;
template class basic_arena<gpu::device_memory>;
template class basic_arena<gpu::pinned_memory>;
template class basic_arena<gpu::managed_memory>;

}  // namespace tidemark
