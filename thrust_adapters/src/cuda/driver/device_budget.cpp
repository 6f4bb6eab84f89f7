// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/device_budget.hpp>

#include <iterator>
#include <utility>

namespace tidemark::cuda {

device_budget::subscription device_budget::subscribe(members device_budget::* list,
                                                     std::function<bool()> call) {
  const std::scoped_lock lock{mutex_};
  (this->*list).push_back(std::move(call));
  return subscription{{this, list, std::prev((this->*list).end())}};
}

bool device_budget::take(std::size_t bytes) noexcept {
  std::size_t held = held_bytes();
  do {
    const std::size_t limit = this->limit();
    if (held > limit || bytes > limit - held) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

// What a callback frees goes to a cache first.
bool device_budget::relieve(subscription const* asking) noexcept {
  const std::scoped_lock lock{mutex_};
  if (std::exchange(is_relieving_, true)) return false;
  std::function<bool()> const* const but =
      asking != nullptr && asking->end_ != nullptr ? &*asking->end_.get_deleter().at : nullptr;
  const auto ask = [but](members const& all) {
    bool any = false;
    for (std::function<bool()> const& each : all) any = (&each != but && each()) || any;
    return any;
  };
  bool any = ask(members_);
  if (ask(callbacks_)) {
    (void)ask(members_);
    any = true;
  }
  is_relieving_ = false;
  return any;
}

}  // namespace tidemark::cuda
