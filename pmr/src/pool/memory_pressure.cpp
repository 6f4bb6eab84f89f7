// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/memory_pressure.hpp>

#include <utility>

namespace tidemark {

pressure_subscription on_memory_pressure(std::function<void()> callback) {
  pressure_subscription subscription;
  subscription.callback_ = detail::call_under_pressure(nullptr, std::move(callback));
  return subscription;
}

std::size_t signal_memory_pressure() { return detail::signal_pressure(); }

}  // namespace tidemark
