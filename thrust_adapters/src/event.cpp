// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/event.hpp>

#include "behind_event.hpp"

namespace tidemark::cuda {

reuse_fence event::as_fence() && {
  static constexpr reuse_fence::functions calls{
      .done = [](void* state) noexcept { return static_cast<event*>(state)->done(); },
      .wait =
          [](void* state) noexcept {
            auto const& guarding = *static_cast<event*>(state);
            (void)detail::wait_for(*guarding.driver_, guarding.handle_);
          },
      .destroy = [](void* state) noexcept { delete static_cast<event*>(state); }};
  return {calls, new event{std::move(*this)}};
}

}  // namespace tidemark::cuda
