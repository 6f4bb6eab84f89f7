// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture`: runs a body once and returns its graph. `captured_graph`: a graph and the memory that its
/// addresses refer to. Owns the graph, its inputs, its outputs and the arena of its temporaries.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {
namespace detail {

/// The parts of a captured graph that do not depend on the types of its inputs and outputs. Owns them.
class graph_parts {
 public:
  graph_parts(capture_switch* through, std::unique_ptr<graph_arena>&& temporaries, graph_stream launched_on);
  graph_parts(graph_parts const&) = delete;
  graph_parts& operator=(graph_parts const&) = delete;
  ~graph_parts();

  // `captured_graph` documents these functions.
  void launch(graph_stream on);
  [[nodiscard]] std::uint64_t launch_count() const;
  /// Captures a body, for the first time or as an update. @return as `captured_graph::update`
  bool record(graph_backend& capturing, std::function<void(std::pmr::memory_resource&)> const& body);

 private:
  bool end_capture(graph_backend& capturing);

  mutable fork_safe<> mutex_;  // guards launches, their count, and the graph
  std::uint64_t launches_ = 0;
  capture_switch* memory_;  // bodies allocate through this switch; null: from the arena
  // Destroyed in reverse order, after the inputs and outputs.
  baked_blocks baked_;

 public:
  graph_stream stream;
  std::unique_ptr<graph_arena> arena;
  std::unique_ptr<graph_backend> backend;  // for updates; null if the caller owns the backend
  std::unique_ptr<graph_instance> graph;   // null during the first capture

 private:
  monotone_layout body_begin_;  // blocks below existed before the first body
  std::size_t first_request_;   // of the bodies, in the plan
};

}  // namespace detail

/// A body that can be captured: callable with the resource for its temporaries, its inputs and its outputs.
template <class Body, class Inputs, class Outputs>
concept capturable = std::invocable<Body&, std::pmr::memory_resource&, Inputs&, Outputs&>;

/// The result of `capture`. Change the inputs in place, and launch the graph any number of times.
///
/// ```cpp
/// auto step = capture(stream, std::move(arena), std::move(x), std::move(y), body);
/// for (auto const& batch : batches) {
///   copy(batch, step.inputs(), stream);   // into the same memory
///   step.launch(stream);                  // what body did, again
///   use(step.outputs(), stream);
/// }
/// ```
/// `update` captures another body into the same graph, with the same inputs and outputs. This is much cheaper
/// than a new graph if only kernel parameters change:
///
/// ```cpp
/// step.update([&](auto& memory, auto& x, auto& y) { launch(stream, memory, x, y, learning_rate / 2); });
/// ```
/// Destruction order: graph, inputs, outputs, arena, then blocks that the capture took elsewhere.
///
/// Move-only; a moved-from graph is empty, and its members throw std::logic_error. Thread-safety: any thread
/// may launch, also in a forked child and during `update`; launches are serialised. Other members need one
/// thread at a time. The backend decides if two launches may run at once; CUDA runs them in order.
/// @tparam Inputs, Outputs movable types that hold the memory of the body
template <class Inputs, class Outputs>
class captured_graph {
 public:
  /// Launches the graph on the stream of the capture; on the host, only counts. The stream must still exist.
  /// @throws whatever the backend throws; `launch_count` is unchanged then
  void launch() { launch(the_parts().stream); }
  /// Launches the graph after the work on `stream`. @throws as above
  void launch(graph_stream stream) { the_parts().launch(stream); }
  /// Captures `body` into this graph; later launches run the new body. The body gets the same inputs, outputs
  /// and arena. Its blocks get the same addresses as the previous body's; blocks from before the first body
  /// stay. Recorded work does not run. On the host the body runs at once.
  ///
  /// Running launches are not affected, and later launches follow them. If the previous graph held blocks for
  /// its launches (`baked_blocks`), `update` waits for these launches.
  ///
  /// @param body captures on the stream of the first capture, or runs on the host
  /// @return true if the executable graph was changed in place; false if it was replaced, because nodes or
  /// dependencies differ
  /// @throws whatever `body` and the backend throw; out_of_memory
  /// @throws layout_mismatch if the arena was made from a rehearsal and the layout differs
  /// @throws allocator_busy as `capture`, and if arena blocks of the previous body are in use, such as blocks
  /// of outputs
  /// @throws std::logic_error of the switch, and if the caller's backend captured the graph
  ///
  /// After an exception the graph is unchanged and can be launched. Changes that `body` made to inputs and
  /// outputs remain. Blocks that `body` left in use in the arena remain; launches overwrite these blocks, and
  /// `update` throws until they are deallocated.
  ///
  /// Complexity: that of the body and of the backend, and O(bytes of the arena / 256) if arena blocks are in
  /// use. Thread-safety: one thread at a time. Other threads may launch the graph meanwhile on another
  /// stream; a launch on the capturing stream throws until the update has ended.
  template <capturable<Inputs, Outputs> Body>
  bool update(Body&& body) {
    parts& of = the_parts();
    if (of.backend == nullptr)
      throw std::logic_error{
          "captured_graph: update needs a backend, because the caller's backend captured this graph"};
    return record(of, *of.backend, body);
  }
  /// Like the overload above with another backend. @throws as above
  template <capturable<Inputs, Outputs> Body>
  bool update(graph_backend& backend, Body&& body) {
    return record(the_parts(), backend, body);
  }
  /// Number of launches, before and after updates.
  [[nodiscard]] std::uint64_t launch_count() const { return the_parts().launch_count(); }
  /// True if a launch repeats the body. False on the host, where the body runs once, in `capture`.
  [[nodiscard]] bool is_replay_capable() const { return the_parts().graph->is_replay_capable(); }

  /// Objects that the body reads. Change their contents in place; do not replace their blocks.
  [[nodiscard]] Inputs& inputs() { return the_parts().inputs; }
  /// Read-only access to the inputs.
  [[nodiscard]] Inputs const& inputs() const { return the_parts().inputs; }
  /// Objects that the body writes.
  [[nodiscard]] Outputs& outputs() { return the_parts().outputs; }
  /// Read-only access to the outputs.
  [[nodiscard]] Outputs const& outputs() const { return the_parts().outputs; }
  /// The arena of the body's temporaries.
  [[nodiscard]] graph_arena const& arena() const { return *the_parts().arena; }

  /// False if the graph was moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return parts_ != nullptr; }

  /// Called by `capture` only. Captures with the backend that `make()` returns. The graph owns a returned
  /// `std::unique_ptr`; a plain pointer stays the caller's.
  template <class MakeBackend, class Body>
  [[nodiscard]] static captured_graph made_by(MakeBackend make, capture_switch* memory,
                                              std::unique_ptr<graph_arena>& arena, Inputs& inputs,
                                              Outputs& outputs, Body& body, graph_stream stream) {
    // Local variables fix the order of destruction if anything throws. Compilers differ in the order in which
    // they destroy arguments.
    auto memory_of_graph = std::move(arena);
    Outputs written(std::move(outputs));
    Inputs read(std::move(inputs));
    auto backend = make();
    if (memory_of_graph == nullptr) throw std::invalid_argument{"capture: the arena is null"};
    auto made = std::make_unique<parts>(memory, std::move(memory_of_graph), std::move(written),
                                        std::move(read), stream);
    (void)record(*made, *backend, body);
    if constexpr (!std::is_pointer_v<decltype(backend)>) made->backend = std::move(backend);
    return captured_graph{std::move(made)};
  }

 private:
  // Allocated on the heap, so references to inputs and outputs survive a move of the graph.
  struct parts : detail::graph_parts {
    parts(capture_switch* through, std::unique_ptr<graph_arena>&& temporaries, Outputs&& written,
          Inputs&& read, graph_stream launched_on)
        : graph_parts{through, std::move(temporaries), launched_on},
          outputs(std::move(written)),
          inputs(std::move(read)) {}
    parts(parts const&) = delete;
    parts& operator=(parts const&) = delete;
    ~parts() { this->graph.reset(); }  // before inputs and outputs

    Outputs outputs;
    Inputs inputs;
  };

  // Captures a body, for the first time or as an update. @return as `update`
  template <class Body>
  static bool record(parts& of, graph_backend& backend, Body& body) {
    return of.record(backend,
                     [&](std::pmr::memory_resource& memory) { body(memory, of.inputs, of.outputs); });
  }

  explicit captured_graph(std::unique_ptr<parts> of) noexcept : parts_{std::move(of)} {}

  [[nodiscard]] parts& the_parts() const {
    if (parts_ == nullptr) throw std::logic_error{"captured_graph: it was moved from, and is empty"};
    return *parts_;
  }

  std::unique_ptr<parts> parts_;
};

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
/// Runs the body at once, on the host. `launch` does nothing, and `is_replay_capable()` is false. The graph
/// owns a new host backend, because these have no state; `update` also runs its body at once.
/// @throws as `capture_with`
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend const&, std::unique_ptr<graph_arena> arena,
                                                      Inputs inputs, Outputs outputs, Body&& body) {
  return captured_graph<Inputs, Outputs>::made_by([] { return std::make_unique<host_backend>(); }, nullptr,
                                                  arena, inputs, outputs, body, nullptr);
}
/// Like the overload above, for a body that allocates through a switch.
template <class Inputs, class Outputs, capturable<Inputs, Outputs> Body>
[[nodiscard]] captured_graph<Inputs, Outputs> capture(host_backend const&, capture_switch& memory,
                                                      std::unique_ptr<graph_arena> arena, Inputs inputs,
                                                      Outputs outputs, Body&& body) {
  return captured_graph<Inputs, Outputs>::made_by([] { return std::make_unique<host_backend>(); }, &memory,
                                                  arena, inputs, outputs, body, nullptr);
}

}  // namespace tidemark
