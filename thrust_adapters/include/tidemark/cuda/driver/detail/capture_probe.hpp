// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_probe`: whether the driver maps memory while a stream captures. Owns nothing.
#pragma once

#include <atomic>

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

}  // namespace detail
}  // namespace tidemark::gpu
