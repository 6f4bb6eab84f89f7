// SPDX-License-Identifier: Apache-2.0
/// @file
/// The background sweeper: asks workspaces, from time to time, to give back what they have not used.
#pragma once

#include <chrono>

#include <tidemark/workspace_compaction.hpp>

namespace tidemark {

/// How often, and how much.
struct sweep_options {
  std::chrono::nanoseconds interval = std::chrono::seconds{30};  ///< between ticks; more than 0
  unsigned trim_every = 10;         ///< every so manieth tick trims, each one compacts; 0: none trims
  compact_options compaction = {};  ///< when a slot is too large
};

/// Starts the sweeper, or gives it other options if it is there.
///
/// A thread of the process that only raises flags, in every workspace that has `workspace_options::sweeps`.
/// The workspace's own thread acts on them when it next opens an outermost scope: so nothing moves while it
/// is in use, and results are the same to the last bit. To trim is then to give back slots
/// that were not used since the last trim (`trim_to_recent_peak`); to compact, to make those smaller that are
/// much larger than anything asked of them since the last compaction, and than the last request before it. A
/// smaller slot that cannot be had is left as it is.
/// @throws std::invalid_argument if the interval is not more than 0; std::system_error if there is no thread
/// to be had. The sweeper is as it was then. Thread-safe.
void enable_workspace_sweeps(sweep_options const& options = {});

/// Stops it, and takes back what it has asked for and nobody has done yet. Does nothing if it is not there.
/// Returns when its thread has ended. Thread-safe.
void disable_workspace_sweeps() noexcept;

/// Whether it is there. Thread-safe.
[[nodiscard]] bool workspace_sweeps_enabled() noexcept;

/// One tick, on the calling thread, whether the sweeper is there or not: for programs that have a clock of
/// their own. O(workspaces). Thread-safe.
void tick_workspace_sweeps() noexcept;

}  // namespace tidemark
