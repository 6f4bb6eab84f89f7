// SPDX-License-Identifier: Apache-2.0
/// @file
/// State of captures in a driver. `capture_probe`: tests mapping during captures. `retired_executables`: owns
/// executables of graphs until no stream captures.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>

struct CUgraphExec_st;

namespace tidemark::gpu {

class driver;

namespace detail {

/// Tests, at most once, whether a driver maps memory during a capture.
///
/// An H100 with driver 580.159.04 maps in every capture mode. CUDA does not document the rule, and an older
/// driver may refuse the call and end the capture. The probe therefore makes its own capture. A new thread,
/// whose capture mode is thread-local, captures a private stream and maps one unit of memory. A refusal can
/// end only this capture.
///
/// Each `driver` has one probe. Thread-safety: any thread; concurrent first calls may both probe.
class capture_probe {
 public:
  /// Returns true if a device permits mapping while a stream captures. If the host or the device has no
  /// memory for the probe, returns false, and the next call probes again.
  [[nodiscard]] bool maps_during_captures(driver& calls, int device) noexcept;

 private:
  enum class answer : signed char { unknown, no, yes };
  [[nodiscard]] static answer query_driver(driver& calls, int device) noexcept;

  std::atomic<answer> known_ = answer::unknown;
};

/// The executables of ended graphs. `cuGraphExecDestroy` invalidates captures in mode `global` of any thread
/// (seen on hardware: pytorch#161037, warp#992). An executable therefore waits for the end of tidemark's
/// captures, and after a refusal of the driver. Captures of other libraries are unknown here.
///
/// Each `driver` has one. The device's context frees executables that remain at its end. Thread-safety: any
/// thread. The executables are destroyed under the lock, and no capture begins meanwhile.
class retired_executables {
 public:
  /// Begins a capture: no executable is destroyed until all captures have ended. Waits for a running
  /// destruction.
  void capture_begins() noexcept;
  /// Ends a capture; the last one destroys the waiting executables.
  void capture_ended(driver& calls) noexcept;
  /// Reserves room for one executable, so that `retire` cannot fail. @throws std::bad_alloc.
  void reserve_one();
  /// Destroys an executable, and all waiting ones, now or later. @pre `reserve_one` was called for the
  /// executable.
  void retire(driver& calls, ::CUgraphExec_st* executable) noexcept;
  /// Returns the number of waiting executables.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  void destroy_waiting(driver& calls) noexcept;  // requires the lock

  mutable tidemark::detail::fork_safe<> mutex_;  // protects the members below
  std::vector<::CUgraphExec_st*> waiting_;       // capacity for all existing executables
  std::size_t executables_ = 0;                  // live or waiting
  std::size_t captures_ = 0;                     // active captures
};

}  // namespace detail
}  // namespace tidemark::gpu
