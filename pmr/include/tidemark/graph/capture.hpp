// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once and returns its graph. Owns nothing after it returns.
#pragma once

#include <memory>
#include <stdexcept>
#include <utility>

#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/captured_graph.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

/// Runs `body(memory, inputs, outputs)` once while `backend` records it. Returns the graph and its memory.
/// Shorter forms for the host are below, and for CUDA in cuda/driver/capture.hpp.
///
/// @param memory a switch that the body allocates through. It is frozen, with the arena installed, while the
/// body runs. It must outlive the graph. Null: the body gets the arena.
/// @param arena for the body's temporaries only. If the arena was made from a layout of `rehearse`, the
/// capture must have exactly this layout.
/// @param inputs, outputs objects that the body reads and writes, moved into the graph; their moves must not
/// throw
/// @param stream default stream of `captured_graph::launch()`
/// @throws whatever the body throws
/// @throws whatever the backend throws if it cannot capture or recorded nothing
/// @throws layout_mismatch; std::bad_alloc; std::invalid_argument if `arena` is null
/// @throws allocator_busy if the arena is shared and blocks are in use after the body
/// @throws std::logic_error if the switch is already frozen or has an arena
///
/// After an exception the capture has ended and the switch is restored. Inputs, outputs and arena are
/// destroyed, in this order.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_with(graph_backend& backend, capture_switch* memory,
                                                           std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                           Outputs outputs, Body&& body,
                                                           graph_stream stream) {
  return captured_graph<Inputs, Outputs>::made_by([&] { return &backend; }, memory, arena, inputs, outputs,
                                                  body, stream);
}
/// Like the overload above, but the graph owns the backend and `captured_graph::update(body)` uses it.
/// @throws as above; std::invalid_argument if `backend` is null
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_with(std::unique_ptr<graph_backend> backend,
                                                           capture_switch* memory,
                                                           std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                           Outputs outputs, Body&& body,
                                                           graph_stream stream) {
  const auto given = [&] {
    if (backend == nullptr) throw std::invalid_argument{"capture: the backend is null"};
    return std::move(backend);
  };
  return captured_graph<Inputs, Outputs>::made_by(given, memory, arena, inputs, outputs, body, stream);
}

/// Runs the body at once, on the host. `launch` does nothing, and `is_replay_capable()` is false. The graph
/// owns a new host backend, because these have no state; `update` also runs its body at once.
/// @throws as `capture_with`
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, std::unique_ptr<graph_arena> arena,
                                                      Inputs inputs, Outputs outputs, Body&& body) {
  return captured_graph<Inputs, Outputs>::made_by([] { return std::make_unique<host_backend>(); }, nullptr,
                                                  arena, inputs, outputs, body, nullptr);
}
/// Like the overload above, for a body that allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return captured_graph<Inputs, Outputs>::made_by([] { return std::make_unique<host_backend>(); }, &memory,
                                                  arena, inputs, outputs, body, nullptr);
}

}  // namespace tidemark
