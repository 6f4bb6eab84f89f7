// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/detail/event_stock.hpp>

#include <utility>

#include <tidemark/cuda/detail/capturing.hpp>
#include <tidemark/cuda/detail/event_result.hpp>
#include <tidemark/cuda/detail/on_device.hpp>

namespace tidemark::cuda::detail {

event_stock::~event_stock() {
  for (entry const& each : entries_) {
    if (each.event != nullptr) (void)driver_->destroy_event(each.event);
  }
}

std::optional<reuse_fence> event_stock::record(stream_handle other) noexcept {
  static constexpr reuse_fence::functions calls{.done =
                                                    [](void* state) noexcept {
                                                      auto const& asked = *static_cast<entry*>(state);
                                                      return asked.owner->is_done(asked);
                                                    },
                                                .wait =
                                                    [](void* state) noexcept {
                                                      auto const& awaited = *static_cast<entry*>(state);
                                                      awaited.owner->wait(awaited);
                                                    },
                                                .destroy =
                                                    [](void* state) noexcept {
                                                      auto& free = *static_cast<entry*>(state);
                                                      free.owner->give(free);
                                                    }};
  entry* const found = take();
  if (found == nullptr) return std::nullopt;
  if (driver_->record(found->event, other) == status::success) return reuse_fence{calls, found};
  give(*found);
  return std::nullopt;
}

std::size_t event_stock::size() const noexcept {
  const std::scoped_lock lock{mutex_};
  return entries_.size();
}

event_stock::entry* event_stock::take() noexcept {
  {
    const std::scoped_lock lock{mutex_};
    if (free_ != nullptr) return std::exchange(free_, free_->next);
  }
  return make();
}

event_stock::entry* event_stock::make() noexcept {
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

void event_stock::give(entry& free) noexcept {
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
