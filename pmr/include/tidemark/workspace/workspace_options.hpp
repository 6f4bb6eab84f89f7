// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, statistics and summaries of a `workspace`, which its parts share; the sweeper, a thread of the
/// process.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory_resource>

#include <tidemark/core/config.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

/// Tensor headers without limit to their number: `workspace_options::cache_ways`.
inline constexpr unsigned unlimited_cache_ways = (std::numeric_limits<unsigned>::max)();

/// Fills memory that the host cannot touch.
struct device_fill {
  /// Writes `n` copies of the `element_bytes` bytes at `element` to `first`, or enqueues that; may throw.
  void (*call)(void* context, void* first, std::size_t n, void const* element,
               std::size_t element_bytes) = nullptr;
  /// What it is called with.
  void* context = nullptr;
};

/// Options of `basic_workspace`.
struct workspace_options {
  /// Of every slot, at least, in bytes: a power of two.
  std::size_t alignment = 64;
  /// Most bytes that all slots may hold; 0: without limit. A request beyond trims the workspace, and if that
  /// is not enough throws `out_of_memory`. Compaction holds a slot twice for a moment.
  std::size_t max_held_bytes = 0;
  /// Tensor headers kept for each slot: 1 to 16, or `unlimited_cache_ways`. Anything else stands for 4, with
  /// a warning.
  unsigned cache_ways = TIDEMARK_WORKSPACE_CACHE_WAYS;
  /// Whether memory is kept for the next time. Without, each acquisition is one allocation of the upstream,
  /// which is freed when its scope ends: to measure what the workspace is worth, or to let a tool see each
  /// block. Configured with TIDEMARK_WORKSPACE_POOLING=OFF no workspace keeps memory, whatever this says.
  bool pooling = TIDEMARK_WORKSPACE_POOLING != 0;
  /// Whether the background sweeper may request that this workspace frees what it has not used for a while.
  bool sweeps = true;
  /// Whether the upstream's memory may be touched by the host. If not, the workspace touches none of it.
  bool host_memory = true;
  /// What `zeros`, `ones`, `fill` and level 1 call where `host_memory` is false.
  device_fill fill = {};
  /// What tensor headers say of their device: DLPack's `DLDeviceType` (1: the host) and its number.
  int device_type = 1;
  /// The number that goes with `device_type`.
  int device_id = 0;
  /// Where records are kept, which is host memory; null: `std::pmr::new_delete_resource()`.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Where the memory of slots comes from; null: `global_pool()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the workspace.
  char const* name = "workspace";
};

/// The options of workspaces made without any: those of `set_default_workspace_options`, else the defaults
/// above with the environment's `TIDEMARK_WORKSPACE_CACHE_WAYS`.
///
/// That is 1 to 16 or "unlimited", and read once; any other text is ignored, with a warning. Thread-safe.
[[nodiscard]] workspace_options default_workspace_options();

/// Sets the options of workspaces that are made without any from now on. Thread-safe.
/// @throws std::invalid_argument if the alignment is not a power of two; the options stay as they were then.
void set_default_workspace_options(workspace_options const& options);

/// A snapshot of the slots of one element type.
///
/// `active_slots <= slots`, `used_bytes <= held_bytes`.
struct workspace_type_stats {
  char const* element = "";      ///< the element's name: "float64", "bits", or that of the C++ type
  std::size_t slot_count = 0;    ///< pieces of memory there are
  std::size_t active_slots = 0;  ///< of them, those acquired now
  std::size_t elements = 0;      ///< acquired now; of "bits", 64 for each word begun
  std::size_t used_bytes = 0;    ///< acquired now
  std::size_t held_bytes = 0;    ///< in slots, acquired or not
};

/// A snapshot of a workspace: the sums over its types, and what belongs to no type.
struct workspace_stats {
  char const* name = "";           ///< the workspace's name
  std::size_t types = 0;           ///< element types with slots
  std::size_t slot_count = 0;      ///< pieces of memory there are
  std::size_t active_slots = 0;    ///< of them, those acquired now
  std::size_t elements = 0;        ///< acquired now
  std::size_t used_bytes = 0;      ///< acquired now
  std::size_t held_bytes = 0;      ///< allocated from the upstream: in slots, acquired or not
  std::size_t tensor_headers = 0;  ///< headers kept for `acquire_tensor`
  std::size_t depth = 0;           ///< scopes and checkpoints open
  std::size_t saved_counts = 0;    ///< that these will restore: one for each type they used
};

/// What `trim` freed.
struct trim_summary {
  std::size_t slot_count = 0;  ///< slots removed
  std::size_t bytes = 0;       ///< freed
};

/// When a slot is larger than it need be.
struct compact_options {
  double factor = 10.0;               ///< if it is at least `factor` times as large as its recent requests …
  std::size_t least_bytes = 1 * MiB;  ///< … and at least `least_bytes` would be freed,
  double headroom = 1.5;              ///< it shrinks to `headroom` times its recent requests, rounded up
};

/// What `compact` did.
struct compact_summary {
  std::size_t slot_count = 0;  ///< slots that shrank
  std::size_t bytes = 0;       ///< freed, less what the smaller ones take
  std::size_t in_use = 0;      ///< slots that are too large, and stay because they are in use
  std::size_t failed = 0;      ///< slots that stay because the upstream had no memory for a smaller one
};

/// How often workspaces are swept, and how much is freed.
struct sweep_options {
  std::chrono::nanoseconds interval = std::chrono::seconds{30};  ///< between ticks; more than 0
  unsigned trim_every = 10;         ///< each tick compacts, every `trim_every`-th one trims; 0: no tick trims
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
