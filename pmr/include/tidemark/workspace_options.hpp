// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a `workspace` is made: what is fixed when it is compiled, and what when it is constructed.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>

#include <tidemark/config.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {

/// What a type of workspace does, fixed at compile time: `basic_workspace<{.checks = 1}>`.
struct workspace_policy {
  /// 0: none; the code is that of a stack of slots and of the log that restores it (decision 15). 1: memory
  /// is filled with a value that is seen when a scope ends; views know whether their memory was taken back;
  /// what escapes from a scope, a scope that is used while one inside it is open, and use by a second thread
  /// are found. That costs time for each byte that is taken back, hence not at the library's default level.
  int checks = check_level >= 2 ? 1 : 0;
  /// Whether memory is kept for the next time. Without, each acquisition is one allocation of the upstream,
  /// given back when its scope ends: to see what the workspace is worth, or to let a tool see each block.
  bool pooling = TIDEMARK_WORKSPACE_POOLING != 0;
  /// Whether the outermost scope looks for what the background sweeper asks for.
  bool sweeps = TIDEMARK_WORKSPACE_SWEEPS != 0;
};

/// Tensor headers without limit to their number: `workspace_options::cache_ways`.
inline constexpr unsigned unlimited_cache_ways = std::numeric_limits<unsigned>::max();

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
  /// Most bytes that all slots may hold; 0: without limit. A request beyond gives back what is not in use,
  /// and if that is not enough throws `out_of_memory`. Compaction has a slot twice for a moment. `unpooled()`
  /// has a limit of its own.
  std::size_t held_bytes_max = 0;
  /// Tensor headers kept for each slot: 1 to 16, or `unlimited_cache_ways`. Anything else stands for 4, and
  /// is warned of.
  unsigned cache_ways = TIDEMARK_WORKSPACE_CACHE_WAYS;
  /// Whether memory is kept; without, as `workspace_policy::pooling`.
  bool pooling = true;
  /// Whether the background sweeper may ask this workspace to give back what it has not used for a while.
  bool sweeps = true;
  /// Whether the upstream's memory may be touched by the host. If not, the workspace touches none of it.
  bool host_memory = true;
  /// What `zeros`, `ones`, `fill` and level 1 call where `host_memory` is false.
  device_fill fill = {};
  /// What tensor headers say of their device: DLPack's `DLDeviceType` (1: the host) and its number.
  int device_type = 1;
  int device_id = 0;
  /// Where records are kept, which is host memory; null: `std::pmr::new_delete_resource()`.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Where the memory of slots comes from; null: `global_pool()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the workspace.
  char const* name = "workspace";
};

/// The options of workspaces made without any: those set by `set_default_workspace_options`, else the ones
/// above with what the environment says.
///
/// `TIDEMARK_WORKSPACE_CACHE_WAYS` is 1 to 16 or "unlimited", `TIDEMARK_WORKSPACE_POOLING` 0 or 1. They are
/// read once; a text that says anything else is warned of and ignored. Thread-safe.
[[nodiscard]] workspace_options default_workspace_options();

/// Sets the options of workspaces that are made without any from now on. Thread-safe.
/// @throws std::invalid_argument if the alignment is not a power of two; those that held hold on then.
void set_default_workspace_options(workspace_options const& options);

}  // namespace tidemark
