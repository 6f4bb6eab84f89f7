// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/observer_list.hpp>

#include <span>
#include <vector>

namespace tidemark {
namespace {

using observers = std::span<allocation_observer* const>;

void tell_failed(observers all, std::size_t bytes) noexcept {
  for (allocation_observer* const each : all) each->failed(bytes);
}

}  // namespace

observer_list::observer_list(std::initializer_list<allocation_observer*> observers) : observers_{observers} {
  std::erase(observers_, nullptr);
}

void observer_list::before_allocate(std::size_t bytes, std::size_t align) {
  for (std::size_t i = 0; i < observers_.size(); ++i) {
    try {
      observers_[i]->before_allocate(bytes, align);
    } catch (...) {
      tell_failed(observers{observers_}.first(i), bytes);
      throw;
    }
  }
}

void observer_list::allocated(void* block, std::size_t bytes, std::size_t align) {
  for (std::size_t i = 0; i < observers_.size(); ++i) {
    try {
      observers_[i]->allocated(block, bytes, align);
    } catch (...) {
      for (allocation_observer* const each : observers{observers_}.first(i)) each->released(block, bytes);
      tell_failed(observers{observers_}.subspan(i + 1), bytes);
      throw;
    }
  }
}

void observer_list::failed(std::size_t bytes) noexcept { tell_failed(observers_, bytes); }

void observer_list::released(void* block, std::size_t bytes) noexcept {
  for (allocation_observer* const each : observers_) each->released(block, bytes);
}

void observer_list::step_began(std::uint64_t kind) noexcept {
  for (allocation_observer* const each : observers_) each->step_began(kind);
}

void observer_list::step_ended() noexcept {
  for (allocation_observer* const each : observers_) each->step_ended();
}

void observer_list::detached() noexcept {
  for (allocation_observer* const each : observers_) each->detached();
}

}  // namespace tidemark
