// SPDX-License-Identifier: Apache-2.0
/// @file
/// `captured_graph`: a graph and all that its addresses refer to. Owns the graph, its inputs, its outputs and
/// the arena of its temporaries.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/graph/baked_blocks.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {
namespace detail {

/// @throws layout_mismatch if the arena was made of a rehearsal and has another layout now.
void require_expected_layout(graph_arena const& arena);

/// What the backend has recorded; its capture is over. @throws as `graph_backend::end`; std::logic_error if
/// that returns null.
[[nodiscard]] std::unique_ptr<graph_instance> ended(graph_backend& backend);

/// Ends a step of a capture that has begun, by this member function, if a later step throws.
template <auto Undo>
struct undone_by {
  void operator()(auto* of) const noexcept { (void)(of->*Undo)(); }
};

}  // namespace detail

template <class Inputs, class Outputs>
class captured_graph;

namespace detail {
template <class Inputs, class Outputs, class Body, class MakeBackend>
captured_graph<Inputs, Outputs> capture_by(MakeBackend make, capture_switch* memory,
                                           std::unique_ptr<graph_arena>& arena, Inputs& inputs,
                                           Outputs& outputs, Body& body, graph_stream stream);
}  // namespace detail

/// A body that can be captured: called once, with where its temporaries are to lie, its inputs and its
/// outputs.
template <class Body, class Inputs, class Outputs>
concept capturable = std::invocable<Body&, std::pmr::memory_resource&, Inputs&, Outputs&>;

/// What `capture` makes: launch it as often as you like, with inputs that were changed in place.
///
/// ```cpp
/// auto step = capture(stream, std::move(arena), std::move(x), std::move(y), body);
/// for (auto const& batch : batches) {
///   copy(batch, step.inputs(), stream);   // into the same memory
///   step.launch(stream);                  // what body did, again
///   use(step.outputs(), stream);
/// }
/// ```
/// Where the work changes, but not its inputs and outputs, `update` captures a body into the same graph. If
/// the new graph is like the old one, with other parameters of its kernels, that is much cheaper than a new
/// graph:
///
/// ```cpp
/// step.update([&](auto& memory, auto& x, auto& y) { launch(stream, memory, x, y, learning_rate / 2); });
/// ```
/// Its parts end in this order: the graph, the inputs, the outputs, the arena; and then the blocks that
/// the capture took elsewhere. So nothing that the graph refers to ends before the graph, and what the
/// inputs and outputs have in the arena is deallocated before that ends.
///
/// Move-only; a moved-from graph is empty, and its members throw std::logic_error. Thread-safety:
/// launches of any thread are serialised, also in a child that is forked, and go on during `update`; the rest
/// one thread at a time.
/// Whether two launches may run at once is the backend's matter: in CUDA, where the second waits for the
/// first.
/// @tparam Inputs, Outputs objects that hold memory the body reads and writes; any movable type.
template <class Inputs, class Outputs>
class captured_graph {
 public:
  /// Launches it on the stream that it was captured on, which must be there still. @throws what the backend
  /// throws; `launch_count` has not changed then.
  void launch() { launch(the_parts().stream); }
  /// Launches it behind what is on `stream`. @throws as above.
  void launch(graph_stream stream) {
    parts& of = the_parts();
    const std::scoped_lock lock{of.mutex};
    of.graph->launch(stream);
    ++of.launches;
  }
  /// Captures `body` anew, into this graph: later launches do what it recorded. It gets the same inputs,
  /// outputs and arena, where it allocates at the same addresses as the body before; blocks that were in the
  /// arena before the first body stay. Nothing that the body records runs. Launches that still run are not
  /// affected, and later ones come behind them; if the graph before held blocks for its launches
  /// (`baked_blocks`), it waits for those.
  ///
  /// On the host the body runs at once.
  /// @param body captures the stream of the first capture, or runs on the host
  /// @return whether the executable graph was changed in place; false: it was made anew, because the driver
  /// cannot put a graph of other nodes or dependencies into it.
  /// @throws what `body` and the backend throw; layout_mismatch, if the arena was made of a rehearsal and
  /// body allocates otherwise; out_of_memory; allocator_busy as `capture`, and if blocks that the body before
  /// allocated from the arena are in use, such as those of outputs; and std::logic_error of the switch, and
  /// if the graph has no backend of its own, because it was captured by one that the caller named. In each
  /// case the graph is what it was: it can be launched, does what it did, and holds what it held. What `body`
  /// did to inputs and outputs stays. Blocks that it left in use in the arena stay so; launches overwrite
  /// them, and `update` refuses until they are deallocated.
  ///
  /// Complexity: that of the body and of the backend, and O(bytes of the arena / 256) if blocks of it are in
  /// use. Thread-safety: one thread at a time; other threads may launch the graph meanwhile, on another
  /// stream than the one that captures: there, where `launch()` goes, a launch throws until the update is
  /// over.
  template <capturable<Inputs, Outputs> Body>
  bool update(Body&& body) {
    parts& of = the_parts();
    if (of.backend == nullptr)
      throw std::logic_error{
          "captured_graph: update of a graph that was captured by a backend of the caller's"};
    return record(of, *of.backend, body);
  }
  /// The same by another backend, which need not be the one of the capture. @throws as above.
  template <capturable<Inputs, Outputs> Body>
  bool update(graph_backend& backend, Body&& body) {
    return record(the_parts(), backend, body);
  }
  /// How often it was launched, before updates and after.
  [[nodiscard]] std::uint64_t launch_count() const {
    parts& of = the_parts();
    const std::scoped_lock lock{of.mutex};
    return of.launches;
  }
  /// Whether a launch does what the body did. Not on the host, where the body has run once, in `capture`.
  [[nodiscard]] bool is_replay_capable() const { return the_parts().graph->is_replay_capable(); }

  /// What the body reads: to be changed in place, and no block of it to be replaced.
  [[nodiscard]] Inputs& inputs() { return the_parts().inputs; }
  /// The same, to be read.
  [[nodiscard]] Inputs const& inputs() const { return the_parts().inputs; }
  /// What the body writes.
  [[nodiscard]] Outputs& outputs() { return the_parts().outputs; }
  /// The same, to be read.
  [[nodiscard]] Outputs const& outputs() const { return the_parts().outputs; }
  /// Where the body's temporaries lie.
  [[nodiscard]] graph_arena const& arena() const { return *the_parts().arena; }

  /// Whether it has not been moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return parts_ != nullptr; }

 private:
  template <class In, class Out, class Body, class MakeBackend>
  friend captured_graph<In, Out> detail::capture_by(MakeBackend, capture_switch*,
                                                    std::unique_ptr<graph_arena>&, In&, Out&, Body&,
                                                    graph_stream);

  // On the heap, so that references to inputs and outputs stay good when the graph is moved.
  struct parts {
    parts(capture_switch* through, std::unique_ptr<graph_arena>&& temporaries, Outputs&& written,
          Inputs&& read, graph_stream launched_on)
        : stream{launched_on},
          memory{through},
          arena{std::move(temporaries)},
          outputs(std::move(written)),
          inputs(std::move(read)),
          body_begin{detail::rewound_arena::mark_of(*arena)} {}

    // The capture is over. @return as `update`
    bool end(graph_backend& capturing) {
      const std::scoped_lock lock{mutex};
      if (graph != nullptr) return capturing.end_into(graph);
      graph = detail::ended(capturing);
      return false;
    }
    // Blocks of an earlier capture, which launches that still run may use.
    void release(baked_blocks held) noexcept {
      if (held.size() == 0) return;
      const std::scoped_lock lock{mutex};
      graph->wait();
    }

    detail::fork_safe<> mutex;  // for launches, their count, and the graph
    std::uint64_t launches = 0;
    graph_stream stream;
    capture_switch* memory;                  // that bodies allocate through; null: the arena itself
    std::unique_ptr<graph_backend> backend;  // of updates; null: of the caller's
    // These end in the reverse of their order.
    baked_blocks baked;
    std::unique_ptr<graph_arena> arena;
    Outputs outputs;
    Inputs inputs;
    std::unique_ptr<graph_instance> graph;  // null while it is captured first
    detail::graph_arena_mark body_begin;    // what lies below in the arena was there before the first body
  };

  // Captures a body, for the first time or anew. @return as `update`
  template <class Body>
  static bool record(parts& of, graph_backend& backend, Body& body) {
    if (of.memory != nullptr) of.memory->freeze();
    std::unique_ptr<capture_switch, detail::undone_by<&capture_switch::unfreeze>> frozen{of.memory};
    if (of.memory != nullptr) of.memory->install_arena(*of.arena);
    std::unique_ptr<capture_switch, detail::undone_by<&capture_switch::clear_arena>> installed{of.memory};
    std::optional<detail::rewound_arena> rewound;
    if (of.graph != nullptr) rewound.emplace(*of.arena, of.body_begin);
    {
      const std::scoped_lock lock{
          of.mutex};  // no launch is on its way to the stream that captures from here on
      backend.begin();
    }
    std::unique_ptr<graph_backend, detail::undone_by<&graph_backend::abandon>> recording{&backend};
    // Not the arena where there is a switch: other threads may deallocate blocks of it meanwhile, which the
    // switch has a lock for.
    std::pmr::memory_resource& temporaries =
        of.memory != nullptr ? static_cast<std::pmr::memory_resource&>(*of.memory) : *of.arena;
    body(temporaries, of.inputs, of.outputs);
    detail::require_expected_layout(*of.arena);
    detail::rewound_arena::require_no_block_outlives(*of.arena);
    const bool is_in_place = of.end(*recording.release());
    if (rewound) rewound->keep();
    installed.reset();
    baked_blocks held;
    // Cast, because nvcc takes the reference that the assignment returns for a discarded value.
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
