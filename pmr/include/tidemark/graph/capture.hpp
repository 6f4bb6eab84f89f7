// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once, and makes a graph of it. Owns nothing once it has returned.
#pragma once

#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <utility>

#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/captured_graph.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

/// Runs `body(memory, inputs, outputs)` once while `backend` records it, and returns the graph with all that
/// it refers to. For CUDA, and for the host, there are shorter forms below and in cuda/driver/capture.hpp.
///
/// @param memory the switch that the body allocates through: frozen, with the arena installed, while the body
/// runs, and passed to the body. It must outlive the graph. Null: the body gets the arena itself.
/// @param arena for the body's temporaries, and its alone. Made of a `rehearse`d layout it must get just
/// that.
/// @param inputs, outputs what the body reads and writes: moved into the graph. No move of them may throw.
/// @param stream where `captured_graph::launch()` launches
/// @throws what the body throws; what the backend throws, where it cannot capture or has recorded nothing;
/// layout_mismatch; allocator_busy, if the arena shares its memory and blocks of it are in use behind the
/// body; std::bad_alloc; std::logic_error of the switch, where it is frozen already or has an arena; and
/// std::invalid_argument if `arena` is null. In each case nothing is captured any more, the switch is as it
/// was, and inputs, outputs and arena are destroyed, in this order.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_with(graph_backend& backend, capture_switch* memory,
                                                           std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                           Outputs outputs, Body&& body,
                                                           graph_stream stream) {
  // Variables, and then members, so that all ends in its order whatever throws: it is the caller's compiler
  // that decides in which order arguments end.
  auto memory_of_graph = std::move(arena);
  Outputs written(std::move(outputs));
  Inputs read(std::move(inputs));
  if (memory_of_graph == nullptr) throw std::invalid_argument{"capture: the arena is null"};
  using parts = captured_graph<Inputs, Outputs>::parts;
  auto made = std::make_unique<parts>(memory, std::move(memory_of_graph), std::move(written), std::move(read),
                                      stream);
  (void)captured_graph<Inputs, Outputs>::record(*made, backend, body);
  return captured_graph<Inputs, Outputs>{std::move(made)};
}
/// The same by a backend that the graph owns from now on: `captured_graph::update(body)` captures with it.
/// @throws as above; std::invalid_argument if `backend` is null.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_with(std::unique_ptr<graph_backend> backend,
                                                           capture_switch* memory,
                                                           std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                           Outputs outputs, Body&& body,
                                                           graph_stream stream) {
  // Variables here, too: see above.
  auto memory_of_graph = std::move(arena);
  Outputs written(std::move(outputs));
  Inputs read(std::move(inputs));
  if (backend == nullptr) throw std::invalid_argument{"capture: the backend is null"};
  auto made = capture_with(*backend, memory, std::move(memory_of_graph), std::move(read), std::move(written),
                           std::forward<Body>(body), stream);
  made.parts_->backend = std::move(backend);
  return made;
}

namespace detail {

// The same by a `Backend` made of these arguments: behind the parts, so that they end in their order if it
// throws.
template <class Backend, class Inputs, class Outputs, class Body, class... Arguments>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_with_own(capture_switch* memory,
                                                               std::unique_ptr<graph_arena> arena,
                                                               Inputs inputs, Outputs outputs, Body&& body,
                                                               graph_stream stream,
                                                               Arguments const&... arguments) {
  auto memory_of_graph = std::move(arena);
  Outputs written(std::move(outputs));
  Inputs read(std::move(inputs));
  std::unique_ptr<graph_backend> backend = std::make_unique<Backend>(arguments...);
  return capture_with(std::move(backend), memory, std::move(memory_of_graph), std::move(read),
                      std::move(written), std::forward<Body>(body), stream);
}

}  // namespace detail

/// Runs the body at once, on the host: `launch` does nothing, and `is_replay_capable()` is false. The graph
/// has a backend of its own, as these have no state, and `update` runs its body at once, too.
/// @throws as `capture_with`.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, std::unique_ptr<graph_arena> arena,
                                                      Inputs inputs, Outputs outputs, Body&& body) {
  return detail::capture_with_own<host_backend>(nullptr, std::move(arena), std::move(inputs),
                                                std::move(outputs), std::forward<Body>(body), nullptr);
}
/// The same, where the body allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return detail::capture_with_own<host_backend>(&memory, std::move(arena), std::move(inputs),
                                                std::move(outputs), std::forward<Body>(body), nullptr);
}

}  // namespace tidemark
