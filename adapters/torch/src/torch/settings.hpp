// SPDX-License-Identifier: Apache-2.0
/// @file
/// `settings`: what memory PyTorch gets, as the program or the environment chose it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark::torch {

/// What serves the work of each stream.
enum class resource_kind {
  heap,     ///< `device_pool`
  planned,  ///< `device_planned_arena`, with a `device_pool` for requests that deviate from the plan
};

/// What can be chosen. It holds from the first allocation on.
struct settings {
  resource_kind resource = resource_kind::heap;
  /// Idle bytes that each stream holds at most; empty: without limit.
  std::optional<std::size_t> max_cached_bytes;
  /// Path of the CSV file of a trace; empty: no trace.
  std::string trace;
};

/// The name in settings and statistics.
[[nodiscard]] char const* name_of(resource_kind kind) noexcept;
/// @throws std::invalid_argument with a sentence that has the names. @param where the setting comes from
[[nodiscard]] resource_kind resource_named(std::string_view name, std::string_view where);

/// As `TIDEMARK_TORCH_RESOURCE`, `TIDEMARK_TORCH_MAX_CACHED_BYTES` and `TIDEMARK_TORCH_TRACE` say; what is
/// unset or empty has its default. @throws std::invalid_argument with a sentence that names the variable.
[[nodiscard]] settings settings_from_environment();

}  // namespace tidemark::torch
