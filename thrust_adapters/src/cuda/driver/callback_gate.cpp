// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/detail/callback_gate.hpp>

#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>

namespace tidemark::gpu::detail {
namespace {

// A thread in `callback_gate::wait`; lies on that thread's stack.
struct waiting_thread {
  unsigned long long number;
  callback_gate const* gate;
  waiting_thread* next;
};

struct waiting_threads {
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
  tidemark::detail::fork_safe<> mutex;  // guards the list
};

waiting_threads& all_waiting() noexcept {
  static auto& threads = *new tidemark::detail::until_unload<waiting_threads>;
  return threads.value;
}

}  // namespace

// The last thread of a cycle detects the cycle, because a thread checks and joins the list under one lock.
bool callback_gate::wait() const noexcept {
  const unsigned long long self = tidemark::detail::this_thread_number();
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

}  // namespace tidemark::gpu::detail
