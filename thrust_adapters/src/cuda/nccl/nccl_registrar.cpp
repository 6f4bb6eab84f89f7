// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/nccl/nccl_registrar.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/nccl/nccl_error.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

constexpr char const* is_capturing = "a stream is capturing";
constexpr char const* no_window =
    "NCCL made no window: it has none on this machine, NCCL_WIN_ENABLE is 0, or a group of calls is open";

}  // namespace

template <nccl_registration Kind>
basic_nccl_registrar<Kind>::basic_nccl_registrar(nccl_communicator communicator, stream_handle stream,
                                                 nccl& calls, driver& driver)
    : communicator_{communicator}, stream_{stream}, calls_{&calls}, driver_{&driver} {
  detail::require_one_stream("gpu::nccl_registrar", "registered memory", stream);
  require_success(calls, "ncclCommCuDevice", calls.device_of(communicator, device_));
}

template <nccl_registration Kind>
bool basic_nccl_registrar<Kind>::on_commit(byte_range range) noexcept {
  refusal_ = "";
  try {
    registrations_.reserve(registrations_.size() + 1);
  } catch (...) {
    return refuse("the host has no memory for the record");
  }
  const detail::on_device here{*driver_, device_};
  if (here.result() != status::success) return refuse(driver_->error_name(here.result()));
  if (detail::capture_state_of(*driver_, stream_) != detail::capture_state::none) return refuse(is_capturing);
  void* handle = nullptr;
  const nccl_status result = register_with_nccl(range, handle);
  if (result != nccl_status::success) return refuse(nccl::error_name(result));
  if (Kind == nccl_registration::window && handle == nullptr) return refuse(no_window);
  registrations_.push_back({range, handle});
  return true;
}

template <nccl_registration Kind>
bool basic_nccl_registrar<Kind>::on_decommit(byte_range range) noexcept {
  refusal_ = "";
  const auto found = std::ranges::find(registrations_, range, &registration::range);
  if (found == registrations_.end()) return refuse("it is not registered");
  const detail::on_device here{*driver_, device_};
  // A driver that shuts down, and a forked child, have no registrations.
  if (here.result() != status::deinitialized && !detail::shows_that_nothing_runs(here.result())) {
    const status waited = detail::wait_for(*driver_, stream_);
    if (waited == status::capture_isolation) return refuse(is_capturing);
    if (waited != status::success) return refuse(driver_->error_name(waited));
    const nccl_status result = deregister_with_nccl(found->handle);
    if (result != nccl_status::success) return refuse(nccl::error_name(result));
  }
  registrations_.erase(found);
  return true;
}

template <nccl_registration Kind>
nccl_status basic_nccl_registrar<Kind>::register_with_nccl(byte_range range, void*& handle) noexcept {
  if constexpr (Kind == nccl_registration::buffer) {
    return end_of(calls_->register_buffer(communicator_, range, handle));
  } else {
    nccl_window window = nullptr;
    const nccl_status result = end_of(calls_->register_window(communicator_, range, flags_, window));
    handle = window;
    return result;
  }
}

template <nccl_registration Kind>
nccl_status basic_nccl_registrar<Kind>::deregister_with_nccl(void* handle) noexcept {
  if (handle == nullptr) return nccl_status::success;  // NCCL_LOCAL_REGISTER is 0
  if constexpr (Kind == nccl_registration::buffer)
    return end_of(calls_->deregister_buffer(communicator_, handle));
  else return end_of(calls_->deregister_window(communicator_, static_cast<nccl_window>(handle)));
}

// Waits as long as a blocking communicator would: until the other ranks arrive or one aborts.
template <nccl_registration Kind>
nccl_status basic_nccl_registrar<Kind>::end_of(nccl_status begun) noexcept {
  while (begun == nccl_status::in_progress) {
    std::this_thread::sleep_for(std::chrono::microseconds{50});
    const nccl_status asked = calls_->progress(communicator_, begun);
    if (asked != nccl_status::success) return asked;
  }
  return begun;
}

template <nccl_registration Kind>
nccl_window_position basic_nccl_registrar<Kind>::window_of(void const* address) const noexcept
  requires(Kind == nccl_registration::window)
{
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  for (registration const& each : registrations_)
    if (each.range.contains(place)) return {static_cast<nccl_window>(each.handle), place - each.range.begin};
  return {};
}

template class basic_nccl_registrar<nccl_registration::buffer>;
template class basic_nccl_registrar<nccl_registration::window>;

}  // namespace tidemark::gpu
