// SPDX-License-Identifier: Apache-2.0
// The planned arena of the device part, instantiated once for all its users.
#include <tidemark/cuda/resources/device_planned_arena.hpp>

namespace tidemark {
template class basic_planned_arena<gpu::virtual_memory>;
}  // namespace tidemark
