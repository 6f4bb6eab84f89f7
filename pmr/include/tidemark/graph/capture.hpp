// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once, and makes a graph of it. Owns nothing once it has returned.
#pragma once

#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/captured_graph.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

namespace detail {

/// Captures with the backend that `make()` returns. A `std::unique_ptr` becomes the graph's; a plain pointer
/// stays the caller's.
template <class Inputs, class Outputs, class Body, class MakeBackend>
[[nodiscard]] captured_graph<Inputs, Outputs> capture_by(MakeBackend make, capture_switch* memory,
                                                         std::unique_ptr<graph_arena>& arena, Inputs& inputs,
                                                         Outputs& outputs, Body& body, graph_stream stream) {
  // Variables, and then members, so that all ends in its order whatever throws: it is the caller's compiler
  // that decides in which order arguments end.
  auto memory_of_graph = std::move(arena);
  Outputs written(std::move(outputs));
  Inputs read(std::move(inputs));
  auto backend = make();
  if (memory_of_graph == nullptr) throw std::invalid_argument{"capture: the arena is null"};
  using graph = captured_graph<Inputs, Outputs>;
  auto made = std::make_unique<typename graph::parts>(memory, std::move(memory_of_graph), std::move(written),
                                                      std::move(read), stream);
  (void)graph::record(*made, *backend, body);
  if constexpr (!std::is_pointer_v<decltype(backend)>) made->backend = std::move(backend);
  return graph{std::move(made)};
}

}  // namespace detail

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
  return detail::capture_by([&] { return &backend; }, memory, arena, inputs, outputs, body, stream);
}
/// The same by a backend that the graph owns from now on: `captured_graph::update(body)` captures with it.
/// @throws as above; std::invalid_argument if `backend` is null.
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
  return detail::capture_by(given, memory, arena, inputs, outputs, body, stream);
}

/// Runs the body at once, on the host: `launch` does nothing, and `is_replay_capable()` is false. The graph
/// has a backend of its own, as these have no state, and `update` runs its body at once, too.
/// @throws as `capture_with`.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, std::unique_ptr<graph_arena> arena,
                                                      Inputs inputs, Outputs outputs, Body&& body) {
  return detail::capture_by([] { return std::make_unique<host_backend>(); }, nullptr, arena, inputs, outputs,
                            body, nullptr);
}
/// The same, where the body allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend&, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return detail::capture_by([] { return std::make_unique<host_backend>(); }, &memory, arena, inputs, outputs,
                            body, nullptr);
}

}  // namespace tidemark
