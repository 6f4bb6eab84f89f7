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
#include <stdexcept>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/graph/baked_blocks.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/graph_backend.hpp>

namespace tidemark {

class capture_switch;

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
/// Its parts end in this order: the graph, the inputs, the outputs, the arena; and then the blocks that
/// the capture took elsewhere. So nothing that the graph refers to ends before the graph, and what the
/// inputs and outputs have in the arena is deallocated before that ends.
///
/// Move-only; a moved-from graph is empty, and its members throw std::logic_error. Thread-safety:
/// launches of any thread are serialised, also in a child that is forked; the rest one thread at a time.
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
  /// How often it was launched.
  [[nodiscard]] std::uint64_t launch_count() const {
    parts& of = the_parts();
    const std::scoped_lock lock{of.mutex};
    return of.launches;
  }
  /// Whether a launch does what the body did. Not on the host, where the body has run once, in `capture`.
  [[nodiscard]] bool is_replay_capable() const { return the_parts().graph->is_replay_capable(); }

  /// What the body reads: to be changed in place, and no block of it to be replaced.
  [[nodiscard]] Inputs& inputs() { return the_parts().inputs; }
  [[nodiscard]] Inputs const& inputs() const { return the_parts().inputs; }
  /// What the body writes.
  [[nodiscard]] Outputs& outputs() { return the_parts().outputs; }
  [[nodiscard]] Outputs const& outputs() const { return the_parts().outputs; }
  /// Where the body's temporaries lie.
  [[nodiscard]] graph_arena const& arena() const { return *the_parts().arena; }

  /// Whether it has not been moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return parts_ != nullptr; }

 private:
  template <class In, class Out, capturable<In, Out> Body>
  friend captured_graph<In, Out> capture_with(graph_backend&, capture_switch*, std::unique_ptr<graph_arena>,
                                              In, Out, Body&&, graph_stream);

  // On the heap, so that references to inputs and outputs stay good when the graph is moved.
  struct parts {
    parts(std::unique_ptr<graph_arena>&& memory, Outputs&& written, Inputs&& read, graph_stream launched_on)
        : stream{launched_on},
          arena{std::move(memory)},
          outputs(std::move(written)),
          inputs(std::move(read)) {}

    detail::fork_safe<> mutex;  // for launches, and their count
    std::uint64_t launches = 0;
    graph_stream stream;
    // These end in the reverse of their order.
    baked_blocks baked;
    std::unique_ptr<graph_arena> arena;
    Outputs outputs;
    Inputs inputs;
    std::unique_ptr<graph_instance> graph;  // null while it is captured
  };

  explicit captured_graph(std::unique_ptr<parts> of) noexcept : parts_{std::move(of)} {}

  [[nodiscard]] parts& the_parts() const {
    if (parts_ == nullptr) throw std::logic_error{"captured_graph: it was moved from, and is empty"};
    return *parts_;
  }

  std::unique_ptr<parts> parts_;
};

}  // namespace tidemark
