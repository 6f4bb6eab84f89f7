// SPDX-License-Identifier: Apache-2.0
/// @file
/// The background sweeper: requests from time to time that workspaces free what they have not used. Owns a
/// thread.
#pragma once

#include <chrono>

#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark {

/// How often workspaces are swept, and how much is freed.
struct sweep_options {
  std::chrono::nanoseconds interval = std::chrono::seconds{30};  ///< between ticks; more than 0
  unsigned trim_every = 10;         ///< each tick compacts, and each one of so many trims; 0: no tick trims
  compact_options compaction = {};  ///< when a slot is too large
};

/// Starts the sweeper, or gives it other options if it runs.
///
/// A thread of the process that only counts ticks. A workspace that has `workspace_options::sweeps` acts on
/// them when its own thread next opens an outermost scope: so nothing moves while it is in use, and results
/// are the same to the last bit. To trim is then to free slots that were not used since the last trim
/// (`trim_to_recent_peak`); to compact, to make those smaller that are much larger than any request since the
/// last compaction, and than the last one before it. If there is no memory for a smaller slot, the slot
/// stays.
/// @throws std::invalid_argument if the interval is not more than 0; std::system_error if there is no thread.
/// The sweeper is as it was then. Thread-safe. In a forked child the sweeper does not run until it is started
/// again.
void enable_workspace_sweeps(sweep_options const& options = {});

/// Stops it, and clears requests that are not done yet. Does nothing if it does not run. Returns when its
/// thread has ended. Thread-safe.
void disable_workspace_sweeps() noexcept;

/// Whether it runs. Thread-safe.
[[nodiscard]] bool workspace_sweeps_enabled() noexcept;

/// One tick, on the calling thread, whether the sweeper runs or not: for programs that have a clock of their
/// own. O(1). Thread-safe.
void tick_workspace_sweeps() noexcept;

}  // namespace tidemark
