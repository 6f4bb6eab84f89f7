// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/event.hpp>

#include "behind_event.hpp"

namespace tidemark::gpu {

reuse_fence event::as_fence() && {
  static constexpr reuse_fence::functions calls{
      .done = [](void* state) noexcept { return static_cast<event*>(state)->done(); },
      .wait =
          [](void* state) noexcept {
            auto const& guard = static_cast<event*>(state)->handle_;
            (void)detail::wait_for(guard.calls(), guard.get());
          },
      .destroy = [](void* state) noexcept { delete static_cast<event*>(state); }};
  return {calls, new event{std::move(*this)}};
}

}  // namespace tidemark::gpu
