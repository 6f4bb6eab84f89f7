// SPDX-License-Identifier: Apache-2.0
/// @file
/// `process_memory`: what is chosen for PyTorch, and the memory of each device. Owns both.
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

/// All that the functions for PyTorch share.
///
/// The process has one, which it never destroys: PyTorch frees tensors when the interpreter and the driver
/// are gone. Thread-safety: any thread.
class process_memory {
 public:
  explicit process_memory(gpu::driver& driver) : driver_{&driver} {}
  process_memory(process_memory const&) = delete;
  process_memory& operator=(process_memory const&) = delete;
  ~process_memory() = default;

  /// The process's own, on the default driver. @throws std::bad_alloc where it is made.
  [[nodiscard]] static process_memory& instance();
  /// For tests: the next one is made anew. @pre no other thread uses it, and all blocks were deallocated.
  static void restart();

  /// Chooses what is not as the environment says. @throws std::logic_error if memory was made already.
  void choose(settings const& chosen);
  /// As chosen, or as the environment says. @throws std::invalid_argument with a sentence.
  [[nodiscard]] settings chosen() const;

  /// The memory of a device, which is made when it is first used. @throws std::invalid_argument as `chosen`;
  /// std::system_error if the trace cannot be written; what the driver throws.
  [[nodiscard]] device_memory& of(gpu::device_number device);
  /// The same, if it was made.
  [[nodiscard]] device_memory* find(gpu::device_number device) noexcept;
  /// Begins a step on all devices, and on those that come; ends the one before. @throws std::bad_alloc.
  void begin_step(std::int64_t kind);
  void end_step() noexcept;
  /// Calls `call` with the memory of each device, until it returns true. @return whether it did.
  template <class Call>
  bool any(Call call) {
    const std::scoped_lock lock{mutex_};
    for (auto const& [device, memory] : devices_) {
      if (call(*memory)) return true;
    }
    return false;
  }

  /// Completes the file of the trace, if there is one. @throws std::system_error if it was not written.
  void close_trace();

 private:
  gpu::driver* driver_;
  mutable std::mutex mutex_;  // for what follows
  std::optional<settings> chosen_;
  std::optional<trace_log> log_;
  std::optional<std::int64_t> step_;  // the kind of the open step; empty: none is open
  // Never moved or erased, so that they are used without the lock.
  std::map<gpu::device_number, std::unique_ptr<device_memory>> devices_;
};

}  // namespace tidemark::torch
