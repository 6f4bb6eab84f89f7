// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pressure_monitor`: signals memory pressure when the kernel reports it. Owns a thread and the open files.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tidemark {

/// Options of `pressure_monitor`.
struct pressure_monitor_options {
  /// Path of the kernel's pressure stall information (docs.kernel.org/accounting/psi.html). Empty: not read.
  std::string psi_path = "/proc/pressure/memory";
  /// Path of the events of a cgroup v2 (docs.kernel.org/admin-guide/cgroup-v2.html, memory.events). Empty:
  /// not read. "self": events of this process's group.
  std::string events_path = "self";
  /// Threshold: memory is short if some task stalls this long within `window`, for lack of memory.
  std::chrono::microseconds stall = std::chrono::milliseconds{150};
  /// Window of `stall`, if the kernel's trigger measures the stall. Unprivileged processes may use only
  /// multiples of two seconds.
  std::chrono::microseconds window = std::chrono::seconds{2};
  /// Time between two reads of files for which the kernel cannot notify the monitor.
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
/// memory.events. The kernel's trigger measures the stall within `window` if it is available; otherwise the
/// monitor measures the growth of `total` between two readings. Missing and malformed files are ignored.
/// Without any source the monitor does nothing and `sources().manual()` is true; the program then calls
/// `signal_memory_pressure()` itself.
///
/// Thread-safety: any thread. A forked child has no listening thread. The child's copy of the monitor only
/// answers `poll()`; a new monitor listens.
class pressure_monitor {
 public:
  /// Sources of pressure that the monitor found.
  struct source_set {
    bool psi = false;          ///< pressure stall information
    bool psi_trigger = false;  ///< the kernel wakes the monitor at a stall
    bool cgroup = false;       ///< memory.events
    /// True if there is no source, so pressure is signalled only by the program.
    [[nodiscard]] bool manual() const noexcept { return !psi && !cgroup; }
  };

  /// Starts to listen. @throws std::system_error or std::bad_alloc if there is no thread or no memory
  explicit pressure_monitor(pressure_monitor_options options = {});
  pressure_monitor(pressure_monitor const&) = delete;
  pressure_monitor& operator=(pressure_monitor const&) = delete;
  /// Stops the thread and waits for it, unless a callback on that thread destroys the monitor.
  ~pressure_monitor();

  /// The sources in use; all false if the system has no source.
  [[nodiscard]] source_set sources() const noexcept;

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
