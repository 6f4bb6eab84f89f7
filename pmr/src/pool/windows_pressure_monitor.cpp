// SPDX-License-Identifier: Apache-2.0
// Other systems have none of the monitor's files. The monitor has no source, `poll()` finds no pressure, and
// programs call `signal_memory_pressure()` themselves.
#if !defined(__linux__)

#include <tidemark/pool/pressure_monitor.hpp>

namespace tidemark {

struct pressure_monitor::listener {};

pressure_monitor::pressure_monitor(pressure_monitor_options) : listener_{std::make_shared<listener>()} {}
pressure_monitor::~pressure_monitor() = default;

pressure_monitor::source_set pressure_monitor::sources() const noexcept { return {}; }
bool pressure_monitor::is_listening() const noexcept { return false; }
bool pressure_monitor::poll() { return false; }
std::uint64_t pressure_monitor::signal_count() const noexcept { return 0; }

}  // namespace tidemark

#endif
