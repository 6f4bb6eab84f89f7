// SPDX-License-Identifier: Apache-2.0
#include <tidemark/memory_pressure.hpp>

#include <mutex>
#include <utility>

namespace tidemark {
namespace {

struct subscriber_list {
  std::mutex mutex;
  std::list<std::function<void()>> callbacks;
};

// Never destroyed, because pools with static storage duration unsubscribe at any time of the program's end.
subscriber_list& subscribers() {
  static auto* const list = new subscriber_list;
  return *list;
}

}  // namespace

pressure_subscription on_memory_pressure(std::function<void()> callback) {
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  return pressure_subscription{list.callbacks.insert(list.callbacks.end(), std::move(callback))};
}

std::size_t signal_memory_pressure() {
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  for (auto const& callback : list.callbacks) callback();
  return list.callbacks.size();
}

pressure_subscription::pressure_subscription(pressure_subscription&& other) noexcept
    : where_{other.where_}, subscribed_{std::exchange(other.subscribed_, false)} {}

pressure_subscription& pressure_subscription::operator=(pressure_subscription&& other) noexcept {
  if (this == &other) return *this;
  const pressure_subscription ended{std::move(*this)};
  where_ = other.where_;
  subscribed_ = std::exchange(other.subscribed_, false);
  return *this;
}

pressure_subscription::~pressure_subscription() {
  if (!subscribed_) return;
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  list.callbacks.erase(where_);
}

}  // namespace tidemark
