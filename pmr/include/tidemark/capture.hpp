// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once, and makes a graph of it. Owns nothing once it has returned.
#pragma once

#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <utility>

#include <tidemark/baked_blocks.hpp>
#include <tidemark/capture_switch.hpp>
#include <tidemark/captured_graph.hpp>
#include <tidemark/graph_arena.hpp>
#include <tidemark/graph_backend.hpp>
#include <tidemark/graph_errors.hpp>

namespace tidemark {

namespace detail {

/// A switch that is frozen, with an arena installed, for as long as this lives. Without a switch it does
/// nothing.
class frozen_scope {
 public:
  frozen_scope(capture_switch* memory, graph_arena& arena) : memory_{memory} {
    if (memory_ == nullptr) return;
    memory_->install_arena(arena);
    try {
      memory_->freeze();
    } catch (...) {
      memory_->clear_arena();
      throw;
    }
  }
  frozen_scope(frozen_scope const&) = delete;
  frozen_scope& operator=(frozen_scope const&) = delete;
  ~frozen_scope() { (void)end(); }

  baked_blocks end() noexcept {
    if (memory_ == nullptr) return {};
    capture_switch* const memory = std::exchange(memory_, nullptr);
    memory->clear_arena();
    return memory->unfreeze();
  }

 private:
  capture_switch* memory_;
};

/// @throws layout_mismatch if the arena was made of a rehearsal and has another layout now.
void require_expected_layout(graph_arena const& arena);

/// @return what a backend's `end` gave. @throws std::logic_error if it is null.
std::unique_ptr<graph_instance> require_instance(std::unique_ptr<graph_instance> ended);

/// A capture that has begun, and is abandoned unless it is ended.
class backend_scope {
 public:
  explicit backend_scope(graph_backend& backend) : backend_{&backend} { backend.begin(); }
  backend_scope(backend_scope const&) = delete;
  backend_scope& operator=(backend_scope const&) = delete;
  ~backend_scope() {
    if (backend_ != nullptr) backend_->abandon();
  }
  std::unique_ptr<graph_instance> end() { return std::exchange(backend_, nullptr)->end(); }

 private:
  graph_backend* backend_;
};

}  // namespace detail

/// Runs `body(memory, inputs, outputs)` once while `backend` records it, and returns the graph with all that
/// it refers to. For CUDA, and for the host, there are shorter forms below and in cuda/capture.hpp.
///
/// @param memory the switch that the body allocates through: frozen, with the arena installed, while the body
/// runs, and what the body is handed. It must outlive the graph. Null: the body is handed the arena itself.
/// @param arena for the body's temporaries, and its alone. Made of a `rehearse`d layout it must get just
/// that.
/// @param inputs, outputs what the body reads and writes: moved into the graph. No move of them may throw.
/// @param stream where `captured_graph::launch()` launches
/// @throws what the body throws; what the backend throws, where it cannot capture or has recorded nothing;
/// layout_mismatch; std::bad_alloc; std::logic_error of the switch, where it is frozen already or has an
/// arena; and std::invalid_argument if `arena` is null. In each case nothing is captured any more, the switch
/// is as it was, and inputs, outputs and arena are gone, in this order.
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
  detail::frozen_scope frozen{memory, *made->arena};
  detail::backend_scope recording{backend};
  // Not the arena where there is a switch: other threads may give blocks of it back meanwhile, which the
  // switch has a lock for.
  std::pmr::memory_resource& temporaries =
      memory != nullptr ? static_cast<std::pmr::memory_resource&>(*memory) : *made->arena;
  body(temporaries, made->inputs, made->outputs);
  detail::require_expected_layout(*made->arena);
  made->graph = detail::require_instance(recording.end());
  (void)(made->baked = frozen.end());  // nvcc takes the reference that it returns for a discarded value
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
