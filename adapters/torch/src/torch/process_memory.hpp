// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_memory`: the settings for PyTorch and the memory of each device. Owns both.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "device_memory.hpp"
#include "settings.hpp"

namespace tidemark::torch {

/// The state that the functions for PyTorch share.
///
/// The process has one object and never destroys it: PyTorch frees tensors after the end of the interpreter
/// and the driver. Thread-safety: any thread.
class process_memory {
 public:
  explicit process_memory(gpu::driver& driver) : driver_{&driver} {}
  process_memory(process_memory const&) = delete;
  process_memory& operator=(process_memory const&) = delete;
  ~process_memory() = default;

  /// Returns the process's object, on the default driver. @throws std::bad_alloc at its construction.
  [[nodiscard]] static process_memory& instance();
  /// For tests: makes the next call construct a new object. @pre No other thread uses it, and all blocks were
  /// deallocated.
  static void restart();

  /// Overrides settings of the environment. @throws std::logic_error if memory exists already.
  void choose(settings const& chosen);
  /// Returns the settings in effect. @throws std::invalid_argument with a sentence.
  [[nodiscard]] settings chosen() const;

  /// Returns the memory of a device, which its first use makes. @throws std::invalid_argument as `chosen`;
  /// std::system_error if the trace cannot be written; exceptions of the driver.
  [[nodiscard]] device_memory& of(gpu::device_number device);
  /// Returns the memory of a device; null if it does not exist.
  [[nodiscard]] device_memory* find(gpu::device_number device) noexcept;
  /// Begins a step on all devices, including later ones, and ends the previous step. @throws std::bad_alloc.
  void begin_step(std::int64_t kind);
  void end_step() noexcept;
  /// Calls `call` with the memory of each device until it returns true. @return true if `call` returned true
  template <class Call>
  bool any(Call call) {
    const std::scoped_lock lock{mutex_};
    for (auto const& [device, memory] : devices_) {
      if (call(*memory)) return true;
    }
    return false;
  }

  /// Completes the file of the trace, if any. @throws std::system_error if the file was not written.
  void close_trace();

 private:
  gpu::driver* driver_;
  mutable std::mutex mutex_;  // protects the members below
  std::optional<settings> chosen_;
  std::optional<trace_log> log_;
  std::optional<std::int64_t> step_;  // kind of the open step; empty: no open step
  // Never moved or erased, and therefore used without the lock.
  std::map<gpu::device_number, std::unique_ptr<device_memory>> devices_;
};

}  // namespace tidemark::torch
