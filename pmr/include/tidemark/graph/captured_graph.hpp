// SPDX-License-Identifier: Apache-2.0
/// @file
/// `captured_graph`: a graph and the memory that its addresses refer to. Owns the graph, its inputs, its
/// outputs and the arena of its temporaries.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/graph/baked_blocks.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {
namespace detail {

/// @throws layout_mismatch if the arena was made from a rehearsal and its layout differs
void require_expected_layout(graph_arena const& arena);

/// Ends the capture and returns the recorded graph. @throws as `graph_backend::end`; std::logic_error if that
/// returns null
[[nodiscard]] std::unique_ptr<graph_instance> ended(graph_backend& backend);

/// A deleter that undoes a step of a capture with this member function if a later step throws.
template <auto Undo>
struct undone_by {
  void operator()(auto* of) const noexcept { (void)(of->*Undo)(); }
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
  /// Launches the graph on the stream of the capture, which must still exist. @throws whatever the backend
  /// throws; `launch_count` is unchanged then
  void launch() { launch(the_parts().stream); }
  /// Launches the graph after the work on `stream`. @throws as above
  void launch(graph_stream stream) {
    parts& of = the_parts();
    const std::scoped_lock lock{of.mutex};
    of.graph->launch(stream);
    ++of.launches;
  }
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
  [[nodiscard]] std::uint64_t launch_count() const {
    parts& of = the_parts();
    const std::scoped_lock lock{of.mutex};
    return of.launches;
  }
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
  struct parts {
    parts(capture_switch* through, std::unique_ptr<graph_arena>&& temporaries, Outputs&& written,
          Inputs&& read, graph_stream launched_on)
        : stream{launched_on},
          memory{through},
          arena{std::move(temporaries)},
          outputs(std::move(written)),
          inputs(std::move(read)),
          body_begin{detail::rewound_arena::mark_of(*arena)} {}

    // Ends a capture. @return as `update`
    bool end(graph_backend& capturing) {
      const std::scoped_lock lock{mutex};
      if (graph != nullptr) return capturing.end_into(graph);
      graph = detail::ended(capturing);
      return false;
    }
    // Waits for launches that may use blocks of an earlier capture, then releases the blocks.
    void release(baked_blocks held) noexcept {
      if (held.size() == 0) return;
      const std::scoped_lock lock{mutex};
      graph->wait();
    }

    detail::fork_safe<> mutex;  // guards launches, their count, and the graph
    std::uint64_t launches = 0;
    graph_stream stream;
    capture_switch* memory;                  // bodies allocate through this switch; null: from the arena
    std::unique_ptr<graph_backend> backend;  // for updates; null if the caller owns the backend
    // Destroyed in reverse order.
    baked_blocks baked;
    std::unique_ptr<graph_arena> arena;
    Outputs outputs;
    Inputs inputs;
    std::unique_ptr<graph_instance> graph;  // null during the first capture
    detail::graph_arena_mark body_begin;    // blocks below existed before the first body
  };

  // Captures a body, for the first time or as an update. @return as `update`
  template <class Body>
  static bool record(parts& of, graph_backend& backend, Body& body) {
    if (of.memory != nullptr) of.memory->freeze();
    std::unique_ptr<capture_switch, detail::undone_by<&capture_switch::unfreeze>> frozen{of.memory};
    if (of.memory != nullptr) of.memory->install_arena(*of.arena);
    std::unique_ptr<capture_switch, detail::undone_by<&capture_switch::clear_arena>> installed{of.memory};
    std::optional<detail::rewound_arena> rewound;
    if (of.graph != nullptr) rewound.emplace(*of.arena, of.body_begin);
    {
      const std::scoped_lock lock{of.mutex};  // no launch reaches the capturing stream after this
      backend.begin();
    }
    std::unique_ptr<graph_backend, detail::undone_by<&graph_backend::abandon>> recording{&backend};
    // With a switch, not the arena: other threads may deallocate blocks of the arena, and the switch has the
    // lock for this.
    std::pmr::memory_resource& temporaries =
        of.memory != nullptr ? static_cast<std::pmr::memory_resource&>(*of.memory) : *of.arena;
    body(temporaries, of.inputs, of.outputs);
    detail::require_expected_layout(*of.arena);
    detail::rewound_arena::require_no_block_outlives(*of.arena);
    const bool is_in_place = of.end(*recording.release());
    if (rewound) rewound->dismiss();
    installed.reset();
    baked_blocks held;
    // The cast is for nvcc, which treats the result of the assignment as a discarded value.
    if (frozen != nullptr) (void)(held = frozen.release()->unfreeze());
    of.release(std::exchange(of.baked, std::move(held)));
    return is_in_place;
  }

  explicit captured_graph(std::unique_ptr<parts> of) noexcept : parts_{std::move(of)} {}

  [[nodiscard]] parts& the_parts() const {
    if (parts_ == nullptr) throw std::logic_error{"captured_graph: it was moved from, and is empty"};
    return *parts_;
  }

  std::unique_ptr<parts> parts_;
};

}  // namespace tidemark
