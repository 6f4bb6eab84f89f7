// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/memory_pressure.hpp>

#include <mutex>
#include <unordered_set>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>

namespace tidemark {
namespace {

struct subscriber_list {
  subscriber_list() noexcept { mutex.adapt_with(*this); }
  // Callbacks of pools that were on the stacks of threads that do not exist here are not called, and kept,
  // because they may own something.
  void adapt_to_child() noexcept {
    std::erase_if(callbacks,
                  [](detail::pressure_callback const* each) { return detail::is_lost(each->stack_owner); });
  }

  std::unordered_set<detail::pressure_callback*> callbacks;
  detail::fork_safe<> mutex;
};

// Never destroyed, because pools with static storage duration unsubscribe at any time of the program's end.
subscriber_list& subscribers() {
  static auto* const list = new subscriber_list;
  return *list;
}

}  // namespace

detail::pressure_callback::~pressure_callback() {
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  list.callbacks.erase(this);
}

pressure_subscription detail::on_memory_pressure_of(void const* object, std::function<void()> callback) {
  pressure_subscription subscription;
  subscription.callback_.reset(new pressure_callback{std::move(callback), stack_owner_of(object)});
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  list.callbacks.insert(subscription.callback_.get());
  return subscription;
}

pressure_subscription on_memory_pressure(std::function<void()> callback) {
  return detail::on_memory_pressure_of(nullptr, std::move(callback));
}

std::size_t signal_memory_pressure() {
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  for (detail::pressure_callback const* each : list.callbacks) each->call();
  return list.callbacks.size();
}

}  // namespace tidemark
