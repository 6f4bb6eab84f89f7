// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, statistics and summaries of a `workspace`, and the controls of the background sweeper. The
/// sweeper is one thread of the process.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <mutex>  // durations: <chrono> also includes <sstream>

#include <tidemark/core/config.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

class allocation_observer;

/// Value of `workspace_options::cache_ways` that sets no limit to the number of tensor headers.
inline constexpr unsigned unlimited_cache_ways = (std::numeric_limits<unsigned>::max)();

/// Fills memory that the host cannot access.
struct device_fill {
  /// Writes `n` copies of the `element_bytes` bytes at `element` to `first`, or enqueues the write. May
  /// throw.
  void (*call)(void* context, void* first, std::size_t n, void const* element,
               std::size_t element_bytes) = nullptr;
  /// First argument of `call`.
  void* context = nullptr;
};

/// Options of `basic_workspace`.
struct workspace_options {
  /// Minimum alignment of every slot in bytes: a power of two.
  std::size_t alignment = 64;
  /// Maximum bytes in all slots together; 0 sets no limit. A request beyond the limit first trims the
  /// workspace and then throws `out_of_memory` if the trim was not enough. Compaction holds a slot twice for
  /// a moment.
  std::size_t max_held_bytes = 0;
  /// Tensor headers kept for each slot: 1 to 16, or `unlimited_cache_ways`. Any other value means 4 and
  /// warns.
  unsigned cache_ways = TIDEMARK_WORKSPACE_CACHE_WAYS;
  /// True if the workspace keeps memory for reuse. If false, each acquisition is one upstream allocation, and
  /// the end of its scope frees the allocation. Use false to measure the benefit of the workspace, or to show
  /// each block to a tool. TIDEMARK_WORKSPACE_POOLING=OFF overrides this option: no workspace keeps memory
  /// then.
  bool pooling = TIDEMARK_WORKSPACE_POOLING != 0;
  /// True if the background sweeper may request that this workspace frees memory it has not used recently.
  bool sweeps = true;
  /// True if the host may access the upstream's memory. If false, the workspace never accesses it.
  bool host_memory = true;
  /// Called by `zeros`, `ones`, `fill` and level 1 if `host_memory` is false.
  device_fill fill = {};
  /// Device in tensor headers: DLPack's `DLDeviceType` (1 is the host).
  int device_type = 1;
  /// Number of the device of kind `device_type`.
  int device_id = 0;
  /// Host memory for the workspace's records; null means `std::pmr::new_delete_resource()`.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Memory of the slots; null means `global_pool()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// Name in messages and statistics. The text must outlive the workspace.
  char const* name = "workspace";
  /// Sees each acquisition of at least one element, and its end; must outlive the workspace.
  /// `TIDEMARK_TRACE` of the environment may add a trace. An observed workspace acquires on its slow path.
  allocation_observer* observer = nullptr;
};

/// Returns the options of workspaces that are made without options.
/// @return the options of the last `set_default_workspace_options`, else the defaults above with the
/// environment's `TIDEMARK_WORKSPACE_CACHE_WAYS`
///
/// The variable is 1 to 16 or "unlimited" and is read once. Any other text is ignored with a warning.
/// Thread-safe.
[[nodiscard]] workspace_options default_workspace_options();

/// Sets the options of workspaces that are made without options from now on. Thread-safe.
/// @throws std::invalid_argument if the alignment is not a power of two; the options do not change then.
void set_default_workspace_options(workspace_options const& options);

/// A snapshot of the slots of one element type.
///
/// `active_slots <= slot_count`, `used_bytes <= held_bytes`.
struct workspace_type_stats {
  char const* element = "";      ///< name of the element type: "float64", "bits", or the C++ type's name
  std::size_t slot_count = 0;    ///< slots, acquired or not
  std::size_t active_slots = 0;  ///< slots that are acquired now
  std::size_t elements = 0;      ///< elements acquired now; a word of "bits" counts 64
  std::size_t used_bytes = 0;    ///< bytes acquired now
  std::size_t held_bytes = 0;    ///< bytes in slots, acquired or not
};

/// A snapshot of a workspace: the sums over its types, and its records.
struct workspace_stats {
  char const* name = "";           ///< name of the workspace
  std::size_t types = 0;           ///< element types that have slots
  std::size_t slot_count = 0;      ///< slots, acquired or not
  std::size_t active_slots = 0;    ///< slots that are acquired now
  std::size_t elements = 0;        ///< elements acquired now
  std::size_t used_bytes = 0;      ///< bytes acquired now
  std::size_t held_bytes = 0;      ///< bytes allocated from the upstream: in slots, acquired or not
  std::size_t tensor_headers = 0;  ///< headers kept for `acquire_tensor`
  std::size_t depth = 0;           ///< open scopes and checkpoints
  std::size_t saved_counts = 0;    ///< counts to restore: one for each type used in each of these
};

/// Result of `trim`.
struct trim_summary {
  std::size_t slot_count = 0;  ///< slots removed
  std::size_t bytes = 0;       ///< bytes freed
};

/// Bounds of compaction. A slot is too large if it has at least `factor` times the bytes of its recent
/// requests, and shrinking it would free at least `least_bytes`. `compact` shrinks it to `headroom` times its
/// recent requests, rounded up.
struct compact_options {
  double factor = 10.0;               ///< size of a slot that is too large, in recent requests
  std::size_t least_bytes = 1 * MiB;  ///< minimum bytes that shrinking must free
  double headroom = 1.5;              ///< size of the smaller slot, in recent requests
};

/// Result of `compact`.
struct compact_summary {
  std::size_t slot_count = 0;  ///< slots that shrank
  std::size_t bytes = 0;       ///< bytes freed, less the bytes of the smaller slots
  std::size_t in_use = 0;      ///< slots that are too large, but are in use and do not shrink
  std::size_t failed = 0;  ///< slots that do not shrink because the upstream has no memory for a smaller slot
};

/// Interval of sweeps, and the bounds of each sweep.
struct sweep_options {
  std::chrono::nanoseconds interval = std::chrono::seconds{30};  ///< time between ticks; more than 0
  unsigned trim_every = 10;  ///< each tick compacts, and every `trim_every`-th tick trims; 0: no tick trims
  compact_options compaction = {};  ///< bounds of a slot that is too large
};

/// Starts the sweeper, or changes its options if it runs.
///
/// The sweeper is one thread of the process, and it only counts ticks. A workspace with
/// `workspace_options::sweeps` acts on new ticks when its own thread next opens an outermost scope. Slots
/// therefore never move while they are in use, and results stay the same to the last bit.
///
/// A tick that trims frees slots that were not used since the last trim (`trim_to_recent_peak`). A tick that
/// compacts shrinks slots that are too large for all requests since the last compaction and for the last
/// request before it. A slot keeps its size if the upstream has no memory for a smaller slot.
///
/// A forked child does not run the sweeper until the child calls this function. Thread-safe.
/// @throws std::invalid_argument if the interval is not more than 0; std::system_error if no thread can
/// start. The sweeper does not change then.
void enable_workspace_sweeps(sweep_options const& options = {});

/// Stops the sweeper and clears requests that no workspace has served. Does nothing if the sweeper does not
/// run. Returns when the thread of the sweeper has ended. Thread-safe.
void disable_workspace_sweeps() noexcept;

/// Returns true if the sweeper runs. Thread-safe.
[[nodiscard]] bool workspace_sweeps_enabled() noexcept;

/// Performs one tick on the calling thread, with or without a running sweeper. Use it in programs that have a
/// clock of their own. O(1). Thread-safe.
void tick_workspace_sweeps() noexcept;

}  // namespace tidemark
