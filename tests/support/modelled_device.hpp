// SPDX-License-Identifier: Apache-2.0
// A device that is a clock: it counts physical memory and the time of driver calls, for measurements without
// a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::test {

/// A device with one stream. Calls take the times measured on an H100 (docs/gpu.md): 32 µs to create, map and
/// make accessible a handle of 2 MiB, and 30 µs to unmap it. Work runs in order, and the host runs ahead of
/// it until it waits.
///
/// Held memory is each physical handle once, mapped or not, and each block of `cuMemAlloc`. Thread-safety:
/// one thread at a time.
class modelled_device final : public gpu::driver {
 public:
  using status = gpu::status;

  explicit modelled_device(std::size_t capacity_bytes) noexcept : capacity_bytes_{capacity_bytes} {}

  /// Work of the stream that takes this long, and the time that the host needs to launch it.
  void work(double host_us, double device_us) noexcept {
    host_us_ += host_us;
    device_us_ = std::max(device_us_, host_us_) + device_us;
  }
  /// Waits until no more than this is left to do.
  void run_ahead_by(double us) noexcept { host_us_ = std::max(host_us_, device_us_ - us); }

  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::size_t peak_held_bytes() const noexcept { return peak_held_bytes_; }
  /// Calls to the driver that take time.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  /// Returns the time of these calls, without waits.
  [[nodiscard]] double call_us() const noexcept { return call_us_; }
  /// Returns when the device ends the work. Waits of the host delay it.
  [[nodiscard]] double device_us() const noexcept { return device_us_; }

  status current_device(gpu::device_number& device) noexcept override { return device = 0, status::success; }
  status current_context(gpu::context_handle& context) noexcept override {
    return context = nullptr, status::success;
  }
  status make_current(gpu::device_number) noexcept override { return status::success; }
  status set_context(gpu::context_handle) noexcept override { return status::success; }
  status memory(gpu::memory_info& info) noexcept override {
    info = {.free_bytes = capacity_bytes_ - held_bytes_, .total_bytes = capacity_bytes_};
    return status::success;
  }
  status granularity(gpu::memory_properties const&, std::size_t& bytes) noexcept override {
    return bytes = 2 * MiB, status::success;
  }
  status reserve(std::size_t bytes, std::size_t, byte_range& range) noexcept override {
    range = {next_address_, bytes};
    next_address_ += bytes;
    return status::success;
  }
  status free_reservation(byte_range) noexcept override { return status::success; }
  status create(gpu::memory_properties const&, std::size_t bytes,
                gpu::physical_handle& memory) noexcept override {
    if (bytes > capacity_bytes_ - held_bytes_) return status::out_of_memory;
    add_held(bytes);
    memory = ++last_handle_;
    handles_[memory] = bytes;
    return spend(2);
  }
  status release(gpu::physical_handle memory) noexcept override {
    held_bytes_ -= handles_.at(memory);
    handles_.erase(memory);
    return spend(0);
  }
  status map(byte_range, gpu::physical_handle) noexcept override { return spend(15); }
  status unmap(byte_range range) noexcept override { return spend(30 * units(range)); }
  status allow_access(byte_range range, gpu::device_set) noexcept override {
    return spend(15 * units(range));
  }
  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    bytes = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);  // what the driver maps
    if (bytes > capacity_bytes_ - held_bytes_) return status::out_of_memory;
    add_held(bytes);
    block = next_address_;
    next_address_ += bytes;
    handles_[block] = bytes;
    return spend(170);
  }
  status free(std::uintptr_t block) noexcept override {
    held_bytes_ -= handles_.at(block);
    handles_.erase(block);
    (void)spend(100);
    return wait_until(device_us_);
  }
  status synchronize() noexcept override { return wait_until(device_us_); }
  status synchronize(gpu::stream_handle) noexcept override { return wait_until(device_us_); }
  status is_capturing(gpu::stream_handle, bool& capturing) noexcept override {
    return capturing = false, status::success;
  }
  status exchange_capture_mode(gpu::capture_mode&) noexcept override { return status::success; }
  status create_event(gpu::event_handle& event) noexcept override {
    event = reinterpret_cast<gpu::event_handle>(++last_event_);
    return spend(1);
  }
  status destroy_event(gpu::event_handle) noexcept override { return status::success; }
  status record(gpu::event_handle event, gpu::stream_handle) noexcept override {
    events_[event] = device_us_;
    return spend(1);
  }
  status query(gpu::event_handle event) noexcept override {
    (void)spend(1);
    return events_[event] <= host_us_ ? status::success : status::not_ready;
  }
  status synchronize(gpu::event_handle event) noexcept override { return wait_until(events_[event]); }

 private:
  static double units(byte_range range) noexcept { return static_cast<double>(range.size / (2 * MiB)); }
  void add_held(std::size_t bytes) noexcept {
    held_bytes_ += bytes;
    peak_held_bytes_ = std::max(peak_held_bytes_, held_bytes_);
  }
  status spend(double us) noexcept {
    host_us_ += us;
    call_us_ += us;
    ++calls_;
    return status::success;
  }
  status wait_until(double us) noexcept {
    host_us_ = std::max(host_us_, us);
    ++calls_;
    return status::success;
  }

  std::size_t capacity_bytes_;
  std::size_t held_bytes_ = 0, peak_held_bytes_ = 0;
  double host_us_ = 0, device_us_ = 0, call_us_ = 0;
  std::uint64_t calls_ = 0;
  std::uintptr_t next_address_ = std::uintptr_t{1} << 45;
  gpu::physical_handle last_handle_ = 0;
  std::uintptr_t last_event_ = 0;
  std::map<unsigned long long, std::size_t> handles_;  // bytes, by handle or address
  std::map<gpu::event_handle, double> events_;         // when they pass
};

}  // namespace tidemark::test
