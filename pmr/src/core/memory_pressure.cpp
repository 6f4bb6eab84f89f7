// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/memory_pressure.hpp>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/detail/until_unload.hpp>

#include "idle_memory.hpp"

namespace tidemark {
namespace {

struct subscriber {
  std::function<void()> call;
  unsigned long long stack_owner;  // `stack_owner_of` the callback's object
};

// One thread signals at a time, so that two callbacks never wait for each other.
//
// Invariant: `running` is 0, or the number of the subscription whose callback the signalling thread calls.
struct subscriber_list {
  subscriber_list() noexcept { mutex.adapt_with(*this); }

  // Callbacks of objects on the stacks of threads that the child lacks are not called. They are kept, because
  // they may own something.
  void adapt_to_child() noexcept {
    if (detail::is_lost(signaller)) finish();
    for (auto each = callbacks.begin(); each != callbacks.end();) {
      const auto next = std::next(each);
      if (detail::is_lost(each->second->stack_owner)) lost.insert(callbacks.extract(each));
      each = next;
    }
  }
  // Begins the first callback with a number in (running, last]. Ends the running callback. @return null if
  // there is no further callback
  [[nodiscard]] std::shared_ptr<subscriber> begin_next(unsigned long long last) noexcept {
    const std::scoped_lock lock{mutex};
    const auto found = callbacks.upper_bound(running);
    const bool is_subscribed = found != callbacks.end() && found->first <= last;
    running = is_subscribed ? found->first : 0;
    running.notify_all();
    return is_subscribed ? found->second : nullptr;
  }
  void finish() noexcept {
    running = 0;
    running.notify_all();
    signaller = 0;
  }
  // Destroys the function here, or after its call if it ends its own subscription.
  void end(unsigned long long number) noexcept {
    std::shared_ptr<subscriber> last;
    {
      const std::scoped_lock lock{mutex};
      const auto found = callbacks.find(number);
      if (found == callbacks.end()) return;  // of a thread that this child lacks
      last = std::move(found->second);
      callbacks.erase(found);
      if (running == number && signaller == detail::this_thread_number()) return;
    }
    running.wait(number);
    last->call = nullptr;
  }

  std::map<unsigned long long, std::shared_ptr<subscriber>> callbacks;  // by number of the subscription
  std::map<unsigned long long, std::shared_ptr<subscriber>> lost;
  unsigned long long newest = 0;  // number of the last subscription
  detail::fork_safe<> mutex;      // guards the fields above, and changes of `running` to a callback
  std::atomic<unsigned long long> running = 0;
  std::atomic<unsigned long long> signaller = 0;  // number of the signalling thread
};

// Never destroyed, because pools with static storage duration may unsubscribe late in the program's end.
subscriber_list& subscribers() {
  static auto& list = *new detail::until_unload<subscriber_list>;
  return list.value;
}

}  // namespace

pressure_subscription detail::call_under_pressure(void const* object, std::function<void()> callback) {
  auto made = std::make_shared<subscriber>(std::move(callback), stack_owner_of(object));
  subscriber_list& list = subscribers();
  unsigned long long number = 0;
  {
    const std::scoped_lock lock{list.mutex};
    number = list.newest + 1;
    list.callbacks.emplace(number, made);
    ++list.newest;
  }
  pressure_subscription result;
  result.callback_ = {static_cast<void*>(made.get()), [&list, number](void*) { list.end(number); }};
  return result;
}

pressure_subscription on_memory_pressure(std::function<void()> callback) {
  return detail::call_under_pressure(nullptr, std::move(callback));
}

std::size_t signal_memory_pressure() {
  subscriber_list& list = subscribers();
  unsigned long long nobody = 0;
  if (!list.signaller.compare_exchange_strong(nobody, detail::this_thread_number())) return 0;
  const std::unique_ptr<subscriber_list, void (*)(subscriber_list*)> finishes{
      &list, [](subscriber_list* signalled) { signalled->finish(); }};
  const unsigned long long last = [&] {
    const std::scoped_lock lock{list.mutex};
    return list.newest;
  }();
  std::size_t called = 0;
  for (; std::shared_ptr<subscriber> const next = list.begin_next(last); ++called) next->call();
  return called;
}

detail::fork_safe<>& detail::idle_memory_mutex() noexcept {
  static auto& mutex = *new until_unload<fork_safe<>>;
  return mutex.value;
}

}  // namespace tidemark
