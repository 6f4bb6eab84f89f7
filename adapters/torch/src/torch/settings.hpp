// SPDX-License-Identifier: Apache-2.0
/// @file
/// `settings`: the program's or the environment's choice of memory for PyTorch.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark::torch {

/// Resource that serves the work of each stream.
enum class resource_kind {
  heap,     ///< `device_pools`
  planned,  ///< `device_pools` with plans
};

/// Settings of PyTorch's memory, in effect from the first allocation on.
struct settings {
  resource_kind resource = resource_kind::heap;
  /// Maximum idle bytes of each stream; empty: no limit.
  std::optional<std::size_t> max_cached_bytes;
  /// Maximum kinds of steps with a plan; empty: the default of `device_pools`.
  std::optional<std::size_t> max_kinds;
  /// Path of the CSV file of a trace; empty: no trace.
  std::string trace;
};

/// Returns the name in settings and statistics.
[[nodiscard]] char const* name_of(resource_kind kind) noexcept;
/// Returns the kind of a name. @param where source of the setting @throws std::invalid_argument with a
/// sentence that lists the names.
[[nodiscard]] resource_kind resource_named(std::string_view name, std::string_view where);

/// Reads `TIDEMARK_TORCH_RESOURCE`, `TIDEMARK_TORCH_MAX_CACHED_BYTES`, `TIDEMARK_TORCH_MAX_KINDS` and
/// `TIDEMARK_TORCH_TRACE`. Unset and empty variables mean the defaults. @throws std::invalid_argument with a
/// sentence that names the variable.
[[nodiscard]] settings settings_from_environment();

}  // namespace tidemark::torch
