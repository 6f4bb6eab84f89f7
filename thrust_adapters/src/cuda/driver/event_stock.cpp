// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/detail/event_stock.hpp>

#include <utility>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "behind_event.hpp"

namespace tidemark::gpu::detail {
namespace {

// Returns a non-null order. Each thread's default stream has its own order, because all share one handle.
void const* order_of(stream_handle stream) noexcept {
  static thread_local char const this_thread = 0;
  if (stream == per_thread_stream) return &this_thread;
  return is_same_stream(stream, nullptr) ? legacy_stream : stream;
}

}  // namespace

event_stock::~event_stock() {
  for (entry const& each : entries_) {
    if (each.event != nullptr) (void)driver_->destroy_event(each.event);
  }
}

std::optional<reuse_fence> event_stock::record(stream_handle other) noexcept {
  static constexpr reuse_fence::functions calls{
      .done =
          [](void* fence) noexcept {
            return shows_end_of_work(as_entry(fence).owner->driver_->query(as_entry(fence).event));
          },
      .wait = [](void* fence) noexcept { as_entry(fence).owner->wait(as_entry(fence)); },
      .destroy = [](void* fence) noexcept { as_entry(fence).owner->release(as_entry(fence)); },
      .order = [](void* fence) noexcept { return as_entry(fence).order; }};
  const relaxed_mode recording{*driver_};
  entry* const found = acquire();
  if (found == nullptr) return std::nullopt;
  found->order = order_of(other);
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
    return &entries_.emplace_back(this, event, nullptr, nullptr);
  } catch (...) {  // any exception of the bookkeeping resource
    (void)driver_->destroy_event(event);
    return nullptr;
  }
}

void event_stock::release(entry& free) noexcept {
  const std::scoped_lock lock{mutex_};
  free.next = std::exchange(free_, &free);
}

void event_stock::query(std::function<void()> const& queries) const noexcept {
  const on_device here{*driver_, device_};
  if (capture_state_of(*driver_, stream_) == capture_state::none) queries();
}

void event_stock::wait(entry const& awaited) const noexcept {
  const on_device here{*driver_, device_};
  status waited = driver_->synchronize(awaited.event);  // a capture permits it: the event is of none
  if (shows_end_of_work(waited)) return;
  if (capture_state_of(*driver_, stream_) == capture_state::none)
    waited = driver_->wait(stream_, awaited.event);
  if (!shows_end_of_work(waited)) require_waited(*driver_, name_, waited);
}

}  // namespace tidemark::gpu::detail
