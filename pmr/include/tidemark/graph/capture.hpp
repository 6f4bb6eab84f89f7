// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once, and makes a graph of it. Owns nothing once it has returned.
#pragma once

#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <utility>

#include <tidemark/graph/baked_blocks.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/captured_graph.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>
#include <tidemark/graph/graph_errors.hpp>

namespace tidemark {

namespace detail {

/// @throws layout_mismatch if the arena was made of a rehearsal and has another layout now.
void require_expected_layout(graph_arena const& arena);

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
/// layout_mismatch; std::bad_alloc; std::logic_error of the switch, where it is frozen already or has an
/// arena; and std::invalid_argument if `arena` is null. In each case nothing is captured any more, the switch
/// is as it was, and inputs, outputs and arena are destroyed, in this order.
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
  auto made =
      std::make_unique<parts>(std::move(memory_of_graph), std::move(written), std::move(read), stream);
  if (memory != nullptr) memory->freeze();
  std::unique_ptr<capture_switch, detail::switch_unfreezer> frozen{memory};
  if (memory != nullptr) memory->install_arena(*made->arena);
  std::unique_ptr<capture_switch, detail::arena_clearer> installed{memory};
  backend.begin();
  std::unique_ptr<graph_backend, detail::capture_abandoner> recording{&backend};
  // Not the arena where there is a switch: other threads may deallocate blocks of it meanwhile, which the
  // switch has a lock for.
  std::pmr::memory_resource& temporaries =
      memory != nullptr ? static_cast<std::pmr::memory_resource&>(*memory) : *made->arena;
  body(temporaries, made->inputs, made->outputs);
  detail::require_expected_layout(*made->arena);
  made->graph = recording.release()->end();
  if (made->graph == nullptr)
    throw std::logic_error{"capture: the backend's end() returned null, and no graph"};
  installed.reset();
  // Cast, because nvcc takes the reference that the assignment returns for a discarded value.
  if (frozen != nullptr) (void)(made->baked = frozen.release()->unfreeze());
  return captured_graph<Inputs, Outputs>{std::move(made)};
}

/// Runs the body at once, on the host: `launch` does nothing, and `is_replay_capable()` is false.
/// @throws as `capture_with`.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend& backend,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return capture_with(backend, nullptr, std::move(arena), std::move(inputs), std::move(outputs),
                      std::forward<Body>(body), nullptr);
}
/// The same, where the body allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend& backend, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return capture_with(backend, &memory, std::move(arena), std::move(inputs), std::move(outputs),
                      std::forward<Body>(body), nullptr);
}

}  // namespace tidemark
