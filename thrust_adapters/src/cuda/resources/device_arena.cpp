// SPDX-License-Identifier: Apache-2.0
// The arenas of the device part, instantiated once for all its users.
#include <tidemark/cuda/resources/device_arena.hpp>

namespace tidemark {

template class basic_arena<cuda::virtual_memory>;
template class basic_arena<cuda::device_memory>;
template class basic_arena<cuda::pinned_memory>;
template class basic_arena<cuda::managed_memory>;

}  // namespace tidemark
