// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/memory_pressure.hpp>

#include <utility>

namespace tidemark {

pressure_subscription detail::on_memory_pressure_of(void const* object, std::function<void()> callback) {
  pressure_subscription subscription;
  subscription.callback_ = call_under_pressure(object, std::move(callback));
  return subscription;
}

pressure_subscription on_memory_pressure(std::function<void()> callback) {
  return detail::on_memory_pressure_of(nullptr, std::move(callback));
}

std::size_t signal_memory_pressure() { return detail::signal_pressure(); }

}  // namespace tidemark
