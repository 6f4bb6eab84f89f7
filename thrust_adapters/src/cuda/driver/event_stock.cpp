// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/detail/event_stock.hpp>

#include <utility>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::cuda::detail {

event_stock::~event_stock() {
  for (entry const& each : entries_) {
    if (each.event != nullptr) (void)driver_->destroy_event(each.event);
  }
}

std::optional<reuse_fence> event_stock::record(stream_handle other) noexcept {
  static constexpr reuse_fence::functions calls{
      .done = [](void* fence) noexcept { return as_entry(fence).owner->is_done(as_entry(fence)); },
      .wait = [](void* fence) noexcept { as_entry(fence).owner->wait(as_entry(fence)); },
      .destroy = [](void* fence) noexcept { as_entry(fence).owner->release(as_entry(fence)); }};
  entry* const found = acquire();
  if (found == nullptr) return std::nullopt;
  if (driver_->record(found->event, other) == status::success) return reuse_fence{calls, found};
  release(*found);
  return std::nullopt;
}

std::size_t event_stock::size() const noexcept {
  const std::scoped_lock lock{mutex_};
  return entries_.size();
}

event_stock::entry* event_stock::acquire() noexcept {
  {
    const std::scoped_lock lock{mutex_};
    if (free_ != nullptr) return std::exchange(free_, free_->next);
  }
  event_handle event = nullptr;
  if (driver_->create_event(event) != status::success) return nullptr;
  try {
    const std::scoped_lock lock{mutex_};
    return &entries_.emplace_back(this, event, nullptr);
  } catch (...) {  // whatever the bookkeeping resource throws
    (void)driver_->destroy_event(event);
    return nullptr;
  }
}

void event_stock::release(entry& free) noexcept {
  const std::scoped_lock lock{mutex_};
  free.next = std::exchange(free_, &free);
}

bool event_stock::is_done(entry const& asked) const noexcept {
  const on_device here{*driver_, device_};
  return !may_be_capturing(*driver_, stream_) && shows_end_of_work(driver_->query(asked.event));
}

void event_stock::wait(entry const& awaited) const noexcept {
  const on_device here{*driver_, device_};
  if (is_capturing(*driver_, stream_)) return;
  if (shows_end_of_work(driver_->synchronize(awaited.event))) return;
  (void)driver_->wait(stream_, awaited.event);
}

}  // namespace tidemark::cuda::detail
