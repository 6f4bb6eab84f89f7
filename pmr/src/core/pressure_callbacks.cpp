// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/pressure_callbacks.hpp>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>

namespace tidemark::detail {

struct pressure_callback {
  std::function<void()> call;
  unsigned long long stack_owner;  // `stack_owner_of` the callback's object
  unsigned long long number = 0;   // number of the subscription
  callback_gate gate = {};
};

namespace {

using callback_pointer = std::shared_ptr<pressure_callback>;

struct subscriber_list {
  subscriber_list() noexcept { mutex.adapt_with(*this); }
  // Callbacks of objects on the stacks of threads that the child lacks are not called. They are kept, because
  // they may own something.
  void adapt_to_child() noexcept {
    for (auto each = callbacks.begin(); each != callbacks.end();) {
      const auto next = std::next(each);
      each->second->gate.adapt_to_child();
      if (is_lost(each->second->stack_owner)) lost.insert(callbacks.extract(each));
      each = next;
    }
  }
  // The first callback with a number in (number, last]; null if none.
  [[nodiscard]] callback_pointer next_behind(unsigned long long number, unsigned long long last) noexcept {
    const std::scoped_lock lock{mutex};
    const auto found = callbacks.upper_bound(number);
    return found != callbacks.end() && found->first <= last ? found->second : nullptr;
  }

  std::map<unsigned long long, callback_pointer> callbacks;  // by number of the subscription
  std::map<unsigned long long, callback_pointer> lost;
  unsigned long long newest = 0;  // number of the last subscription
  fork_safe<> mutex;              // guards all fields; never held during a callback
};

// Never destroyed, because pools with static storage duration may unsubscribe late in the program's end.
subscriber_list& subscribers() {
  static auto& list = *new until_unload<subscriber_list>;
  return list.value;
}

}  // namespace

// Destroys the function here, or after its call if waiting for the call is impossible.
void pressure_ender::operator()(pressure_callback* ended) const noexcept {
  subscriber_list& list = subscribers();
  callback_pointer last;
  {
    const std::scoped_lock lock{list.mutex};
    const auto found = list.callbacks.find(ended->number);
    if (found == list.callbacks.end()) return;  // of a thread that this child lacks
    last = std::move(found->second);
    list.callbacks.erase(found);
  }
  if (last->gate.close()) last->call = nullptr;
}

pressure_handle call_under_pressure(void const* object, std::function<void()> callback) {
  auto made = std::make_shared<pressure_callback>(std::move(callback), stack_owner_of(object));
  subscriber_list& list = subscribers();
  const std::scoped_lock lock{list.mutex};
  made->number = list.newest + 1;
  list.callbacks.emplace(made->number, made);
  ++list.newest;
  return pressure_handle{made.get()};
}

std::size_t signal_pressure() {
  thread_local bool is_signalling = false;  // of this thread
  if (std::exchange(is_signalling, true)) return 0;
  const std::unique_ptr<bool, void (*)(bool*)> ends{&is_signalling, [](bool* signals) { *signals = false; }};
  subscriber_list& list = subscribers();
  const unsigned long long last = [&] {
    const std::scoped_lock lock{list.mutex};
    return list.newest;
  }();
  std::size_t called = 0;
  callback_pointer next;
  for (unsigned long long number = 0; (next = list.next_behind(number, last)) != nullptr;) {
    number = next->number;
    if (!next->gate.enter()) continue;
    const std::unique_ptr<callback_gate, void (*)(callback_gate*)> leaves{
        &next->gate, [](callback_gate* gate) { gate->unlock(); }};
    next->call();
    ++called;
  }
  return called;
}

fork_safe<>& idle_memory_mutex() noexcept {
  static auto& mutex = *new until_unload<fork_safe<>>;
  return mutex.value;
}

namespace {

// A thread in `callback_gate::wait`; lies on that thread's stack.
struct waiting_thread {
  unsigned long long number;
  callback_gate const* gate;
  waiting_thread* next;
};

struct waiting_threads {
  waiting_threads() noexcept { mutex.adapt_with(*this); }
  void adapt_to_child() noexcept { first = nullptr; }  // the forking thread does not wait

  [[nodiscard]] callback_gate const* awaited_by(unsigned long long thread) const noexcept {
    for (waiting_thread const* each = first; each != nullptr; each = each->next)
      if (each->number == thread) return each->gate;
    return nullptr;
  }
  void remove(waiting_thread& gone) noexcept {
    waiting_thread** link = &first;
    while (*link != nullptr && *link != &gone) link = &(*link)->next;
    if (*link != nullptr) *link = gone.next;
  }

  waiting_thread* first = nullptr;
  fork_safe<> mutex;  // guards the list
};

waiting_threads& all_waiting() noexcept {
  static auto& threads = *new until_unload<waiting_threads>;
  return threads.value;
}

}  // namespace

// The last thread of a cycle detects the cycle, because a thread checks and joins the list under one lock.
bool callback_gate::wait() const noexcept {
  const unsigned long long self = this_thread_number();
  unsigned long long runner = runner_.load();
  if (runner == 0 || runner == self) return runner == 0;
  waiting_threads& threads = all_waiting();
  waiting_thread waiting{self, this, nullptr};
  {
    const std::scoped_lock lock{threads.mutex};
    for (callback_gate const* gate = this; gate != nullptr; gate = threads.awaited_by(runner))
      if ((runner = gate->runner_.load()) == self) return false;
    waiting.next = threads.first;
    threads.first = &waiting;
  }
  for (;;) {
    while ((runner = runner_.load()) != 0) runner_.wait(runner);
    const std::scoped_lock lock{threads.mutex};
    if (runner_.load() != 0) continue;  // a thread may have entered again and found this thread in the list
    threads.remove(waiting);
    return true;
  }
}

}  // namespace tidemark::detail
