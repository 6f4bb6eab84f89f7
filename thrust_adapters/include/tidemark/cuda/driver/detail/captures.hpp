// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a driver knows of captures: `capture_probe`, whether it maps memory meanwhile; `retired_executables`,
/// graphs that are to be destroyed when nothing captures, which it owns until then.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>

struct CUgraphExec_st;

namespace tidemark::gpu {

class driver;

namespace detail {

/// The answer of a driver to one question, asked at most once: does it map memory during a capture?
///
/// An H100 with driver 580.159.04 maps in every capture mode. CUDA does not document the rule, so an older
/// driver may refuse the call and end the capture. The probe therefore uses a capture of its own: a new
/// thread, whose capture mode is thread-local, captures a private stream, and maps one unit of memory. A
/// refusal can end that capture alone.
///
/// Each `driver` has one. Thread-safety: any thread; threads that ask at once may both probe.
class capture_probe {
 public:
  /// True if memory may be mapped on a device while a stream captures. If the host or the device has no
  /// memory for the probe, the result is false and the next call probes again.
  [[nodiscard]] bool maps_during_captures(driver& calls, int device) noexcept;

 private:
  enum class answer : signed char { unknown, no, yes };
  [[nodiscard]] static answer ask(driver& calls, int device) noexcept;

  std::atomic<answer> known_ = answer::unknown;
};

/// The executables of ended graphs. `cuGraphExecDestroy` invalidates captures in mode `global` of any thread
/// (seen on hardware: pytorch#161037, warp#992), so an executable waits while a capture of tidemark's goes
/// on, and where the driver refuses. Captures that others begin are not known here.
///
/// Each `driver` has one. What it still has when that ends is lost with the device's context.
/// Thread-safety: any thread. The driver destroys under the lock, so that no capture begins meanwhile.
class retired_executables {
 public:
  /// A capture begins; nothing is destroyed until as many have ended. Waits for what is being destroyed.
  void capture_begins() noexcept;
  /// A capture has ended: destroys what waits if it was the last.
  void capture_ended(driver& calls) noexcept;
  /// Makes room for one more, so that `retire` cannot fail. @throws std::bad_alloc.
  void reserve_one();
  /// Destroys an executable, and all that wait, now or later. @pre `reserve_one` was called for it.
  void retire(driver& calls, ::CUgraphExec_st* executable) noexcept;
  /// How many wait.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  void destroy_waiting(driver& calls) noexcept;  // under the lock

  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows
  std::vector<::CUgraphExec_st*> waiting_;       // has capacity for all executables there are
  std::size_t executables_ = 0;                  // live or waiting
  std::size_t captures_ = 0;                     // that go on
};

}  // namespace detail
}  // namespace tidemark::gpu
