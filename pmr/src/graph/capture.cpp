// SPDX-License-Identifier: Apache-2.0
#include <tidemark/graph/capture.hpp>

#include <memory>
#include <stdexcept>
#include <string>

#include <tidemark/graph/graph_errors.hpp>

namespace tidemark {
namespace {

class host_instance final : public graph_instance {
 public:
  void wait() noexcept override {}
  void launch(graph_stream) override {}
  [[nodiscard]] bool is_replay_capable() const noexcept override { return false; }
};

}  // namespace

std::unique_ptr<graph_instance> host_backend::end() { return std::make_unique<host_instance>(); }

bool graph_backend::end_into(std::unique_ptr<graph_instance>& instance) {
  instance = detail::ended(*this);  // the destructor of the old instance waits for its launches
  return false;
}

std::unique_ptr<graph_instance> detail::ended(graph_backend& backend) {
  std::unique_ptr<graph_instance> made = backend.end();
  if (made == nullptr) throw std::logic_error{"capture: the backend's end() returned null, and no graph"};
  return made;
}

void detail::require_expected_layout(graph_arena const& arena) {
  if (!arena.expected() || arena.is_planned()) return;
  graph_layout const& expected = *arena.expected();
  const graph_layout found = arena.layout();
  // The alignment is not compared: it belongs to the arena, and a smaller alignment moves no block.
  if (found.hash == expected.hash && found.allocations == expected.allocations &&
      found.bytes == expected.bytes)
    return;
  throw layout_mismatch{"capture: graph_arena '" + std::string{arena.name()} +
                            "' was made for a rehearsal of " + std::to_string(expected.allocations) +
                            " blocks in " + std::to_string(expected.bytes) + " bytes, and the capture had " +
                            std::to_string(found.allocations) + " in " + std::to_string(found.bytes) +
                            (found.allocations == expected.allocations && found.bytes == expected.bytes
                                 ? ", of other sizes or in another order"
                                 : ""),
                        expected, found};
}

}  // namespace tidemark
