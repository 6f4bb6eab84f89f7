// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pressure_monitor`: signals memory pressure when the kernel reports it. Owns a thread and the files
/// it reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tidemark {

/// What a `pressure_monitor` listens to.
struct pressure_monitor_options {
  /// The kernel's pressure stall information (docs.kernel.org/accounting/psi.html). Empty: not to be read.
  std::string psi_path = "/proc/pressure/memory";
  /// The events of a cgroup v2 (docs.kernel.org/admin-guide/cgroup-v2.html, memory.events). Empty: not to be
  /// read; "self": those of the group this process is in.
  std::string events_path = "self";
  /// Pressure is when tasks were stalled for lack of memory for this long ...
  std::chrono::microseconds stall = std::chrono::milliseconds{150};
  /// ... within this time, where the kernel counts. It grants everyone multiples of two seconds only.
  std::chrono::microseconds window = std::chrono::seconds{2};
  /// How often files are read that cannot wake a reader.
  std::chrono::milliseconds interval = std::chrono::seconds{1};
  /// Whether a thread of the monitor does it; otherwise only `poll()` does.
  bool background = true;
};

/// Calls `signal_memory_pressure()` when the kernel says that memory is short, so that pools return what they
/// cache.
///
/// ```cpp
/// pressure_monitor monitor;  // from here on; pools trim in their owners' next calls
/// ```
/// Pressure is a stall of PSI beyond the threshold: by the kernel's trigger where it lets us have one, which
/// counts within `window`; otherwise by the growth of `total` from one reading to the next. Or it is a rising
/// count of `high`, `max`, `oom` or `oom_kill` in memory.events. Files that are not there or not of that form
/// are left alone; if none is left, the monitor does nothing, `sources()` says so, and the program calls
/// `signal_memory_pressure()` itself. Thread-safe. A child that is forked has no thread that listens: there
/// the monitor only answers `poll()`, and a new one listens again.
class pressure_monitor {
 public:
  /// What it found to listen to.
  struct source_set {
    bool psi = false;          ///< pressure stall information
    bool psi_trigger = false;  ///< ... and the kernel wakes us
    bool cgroup = false;       ///< memory.events
    /// Whether there is neither: pressure comes by hand only.
    [[nodiscard]] bool manual() const noexcept { return !psi && !cgroup; }
  };

  /// Starts to listen. @throws std::system_error or std::bad_alloc if there is no thread or no memory.
  explicit pressure_monitor(pressure_monitor_options options = {});
  pressure_monitor(pressure_monitor const&) = delete;
  pressure_monitor& operator=(pressure_monitor const&) = delete;
  /// Stops, and waits for the thread, unless a callback on that thread destroys the monitor.
  ~pressure_monitor();

  /// What of the system it listens to; nothing where the system has none of it.
  [[nodiscard]] source_set sources() const noexcept;

  /// Reads the files now and signals pressure if there was any since the last time they were read.
  /// @return whether there was.
  bool poll();

  /// Whether a thread of it listens: not without `background`, without sources, or in a child.
  [[nodiscard]] bool is_listening() const noexcept;

  /// How often it has signalled pressure.
  [[nodiscard]] std::uint64_t signal_count() const noexcept;

 private:
  struct listener;
  std::shared_ptr<listener> listener_;
};

}  // namespace tidemark
