// SPDX-License-Identifier: Apache-2.0
// The workspaces that the background sweeper may ask to give memory back.
#pragma once

#include <tidemark/workspace_compaction.hpp>

namespace tidemark::detail {

class workspace_core;

/// The sweeper knows the workspace from here on. Thread-safe, O(1).
void register_workspace(workspace_core& workspace) noexcept;
/// … and no more. Does nothing to one that it does not know. Thread-safe, O(1).
void unregister_workspace(workspace_core& workspace) noexcept;

/// How the sweeper wants slots to be compacted. Thread-safe.
[[nodiscard]] compact_options sweep_compaction() noexcept;

}  // namespace tidemark::detail
