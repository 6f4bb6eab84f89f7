// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pressure_monitor`: signals memory pressure when the kernel reports it. Owns a thread and the open files.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>  // durations: <chrono> also includes <sstream>
#include <string>

namespace tidemark {

/// Options of `pressure_monitor`.
struct pressure_monitor_options {
  /// Path of the kernel's pressure stall information (docs.kernel.org/accounting/psi.html). Empty: not read.
  std::string psi_path = "/proc/pressure/memory";
  /// Path of the events of a cgroup v2 (docs.kernel.org/admin-guide/cgroup-v2.html, memory.events). Empty:
  /// not read. "self": events of this process's group.
  std::string events_path = "self";
  /// Threshold: memory is short if some task stalls this long between two reads, for lack of memory.
  std::chrono::microseconds stall = std::chrono::milliseconds{150};
  /// Time between two reads of the files.
  std::chrono::milliseconds interval = std::chrono::seconds{1};
  /// True: a thread of the monitor listens. False: only `poll()` reads.
  bool background = true;
};

/// Calls `signal_memory_pressure()` when the kernel reports a shortage of memory, so that pools return cached
/// memory.
///
/// ```cpp
/// pressure_monitor monitor;  // from here on; pools trim in their owners' next calls
/// ```
/// Pressure is a PSI stall over the threshold, or a rising count of `high`, `max`, `oom` or `oom_kill` in
/// memory.events. The monitor measures the stall as the growth of `total` between two reads. Missing and
/// malformed files are ignored. Without any source the monitor does nothing and `has_source()` is false; the
/// program then calls `signal_memory_pressure()` itself.
///
/// Thread-safety: any thread. A forked child has no listening thread. The child's copy of the monitor only
/// answers `poll()`; a new monitor listens.
class pressure_monitor {
 public:
  /// Starts to listen. @throws std::system_error or std::bad_alloc if there is no thread or no memory
  explicit pressure_monitor(pressure_monitor_options options = {});
  pressure_monitor(pressure_monitor const&) = delete;
  pressure_monitor& operator=(pressure_monitor const&) = delete;
  /// Stops the thread and waits for it, unless a callback on that thread destroys the monitor.
  ~pressure_monitor();

  /// True if the monitor has found a source of pressure.
  [[nodiscard]] bool has_source() const noexcept;

  /// Reads the files now, and signals pressure if there was pressure since the previous read.
  /// @return true if there was pressure
  bool poll();

  /// True if a thread of the monitor listens. False without `background`, without sources, and in a child.
  [[nodiscard]] bool is_listening() const noexcept;

  /// Number of signals so far.
  [[nodiscard]] std::uint64_t signal_count() const noexcept;

 private:
  struct listener;
  std::shared_ptr<listener> listener_;
};

}  // namespace tidemark
