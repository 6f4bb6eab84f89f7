// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `captured_graph` needs to record a body: how steps that have begun end if a later one throws. Own
/// nothing.
#pragma once

#include <memory>

#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark::detail {

/// @throws layout_mismatch if the arena was made of a rehearsal and has another layout now.
void require_expected_layout(graph_arena const& arena);

/// What the backend has recorded; its capture is over. @throws as `graph_backend::end`; std::logic_error if
/// that returns null.
[[nodiscard]] std::unique_ptr<graph_instance> ended(graph_backend& backend);

// What ends the parts of a capture that has begun, if it throws.
struct capture_abandoner {
  void operator()(graph_backend* backend) const noexcept { backend->abandon(); }
};
struct switch_unfreezer {
  void operator()(capture_switch* memory) const noexcept { (void)memory->unfreeze(); }
};
struct arena_clearer {
  void operator()(capture_switch* memory) const noexcept { (void)memory->clear_arena(); }
};

}  // namespace tidemark::detail
