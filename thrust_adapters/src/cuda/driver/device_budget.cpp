// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/device_budget.hpp>

#include <algorithm>
#include <vector>

namespace tidemark::gpu {
namespace {

// Whether this thread is asking, so that what is asked asks nobody.
thread_local bool is_asking = false;

}  // namespace

device_budget::subscription device_budget::subscribe(std::function<bool()> call, bool is_member) {
  auto made = std::make_shared<entry>(std::move(call), is_member);
  const std::scoped_lock lock{mutex_};
  entries_.push_back(made);
  subscription result;
  result.entry_ = {made.get(), {this}};
  return result;
}

void device_budget::end(entry const* ended) noexcept {
  std::shared_ptr<entry> last;  // a call of another thread may need it longer
  {
    const std::scoped_lock lock{mutex_};
    const auto found = std::ranges::find(entries_, ended, &std::shared_ptr<entry>::get);
    last = std::move(*found);
    entries_.erase(found);
  }
  const std::scoped_lock lock{last->mutex};
  last->has_ended = true;
}

bool device_budget::take(std::size_t bytes) noexcept {
  std::size_t held = held_bytes();
  do {
    const std::size_t limit = this->limit();
    if (held > limit || bytes > limit - held) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

bool device_budget::ask(bool members, entry const* but) noexcept {
  std::vector<std::shared_ptr<entry>> asked;
  try {
    const std::scoped_lock lock{mutex_};
    asked.assign(entries_.begin(), entries_.end());
  } catch (...) {  // the host has no memory either
    return false;
  }
  bool any = false;
  for (std::shared_ptr<entry> const& each : asked) {
    if (each.get() == but || each->is_member != members) continue;
    const std::scoped_lock lock{each->mutex};
    if (!each->has_ended) any = each->call() || any;
  }
  return any;
}

// What a callback frees goes to a cache first.
bool device_budget::relieve(subscription const* asking) noexcept {
  if (std::exchange(is_asking, true)) return false;
  entry const* const but = asking != nullptr ? asking->entry_.get() : nullptr;
  bool any = ask(true, but);
  if (ask(false, but)) {
    (void)ask(true, but);
    any = true;
  }
  is_asking = false;
  return any;
}

}  // namespace tidemark::gpu
