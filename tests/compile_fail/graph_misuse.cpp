// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <memory>
#include <memory_resource>
#include <string>
#include <utility>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

using graph = captured_graph<int, float>;

void misuse(graph_arena& arena, capture_switch& memory, host_backend& host, unique_block& block,
            graph& made) {
  const auto body = [](std::pmr::memory_resource& temporaries, int& in, float& out) {
    out = static_cast<float>(in);
    (void)temporaries;
  };
  const auto new_arena = [] { return std::make_unique<graph_arena>(1024, nullptr); };
  made = capture(host, new_arena(), 1, 1.0F, body);
  made = capture(host, memory, new_arena(), 1, 1.0F, body);
  (void)rehearse([&](std::pmr::memory_resource& given) { (void)given.allocate(1); });
  (void)arena, (void)block;
#if CASE == 1  // message: deleted
  graph copy{made};
#elif CASE == 2   // message: (deleted|no viable)
  made = made;
#elif CASE == 3   // message: deleted
  graph_arena copy{arena};
#elif CASE == 4   // message: deleted
  capture_switch copy{memory};
#elif CASE == 5   // message: (deleted|no matching)
  unique_block copy{block};
#elif CASE == 6   // message: (deleted|no matching)
  rehearsal stage;
  rehearsal copy{stage};
#elif CASE == 7   // message: (nodiscard|discard|unused|ignoring)
  capture(host, new_arena(), 1, 1.0F, body);  // would end the graph at the semicolon
#elif CASE == 8   // message: (nodiscard|discard|unused|ignoring)
  rehearse([](std::pmr::memory_resource&) {});
#elif CASE == 9   // message: (nodiscard|discard|unused|ignoring)
  memory.unfreeze();  // would return memory whose addresses the graph has
#elif CASE == 10  // message: (nodiscard|discard|unused|ignoring)
  unique_block{&memory, 100};
#elif CASE == 11  // message: (nodiscard|discard|unused|ignoring)
  block.release();
#elif CASE == 12  // message: (nodiscard|discard|unused|ignoring)
  arena.allocate(1);
#elif CASE == 13  // message: (nodiscard|discard|unused|ignoring)
  memory.allocate(1);
#elif CASE == 14  // message: capturable
  (void)capture(host, new_arena(), 1, 1.0F, [](std::pmr::memory_resource&, int&) {});
#elif CASE == 15  // message: capturable
  (void)capture(host, memory, new_arena(), 1, 1.0F, [](std::pmr::memory_resource&, int&, std::string&) {});
#elif CASE == 16  // message: capturable
  (void)capture(host, new_arena(), 1, 1.0F, [](std::pmr::memory_resource&, int&&, float&) {});
#elif CASE == 17  // message: capturable
  (void)capture_with(host, &memory, new_arena(), 1, 1.0F, 42, nullptr);
#elif CASE == 18  // message: (constraints not satisfied|no matching|unsatisfied)
  (void)block.as<std::string>();
#elif CASE == 19  // message: (explicit|no viable|could not convert|no match|conversion)
  graph_arena implicit = byte_range{256, 256};
#elif CASE == 20  // message: (explicit|no viable|could not convert|no match|conversion)
  capture_switch implicit = std::pmr::new_delete_resource();
#elif CASE == 21  // message: (private|no matching)
  graph empty{nullptr};
#elif CASE == 22  // message: (discards qualifiers|no matching|drops|const)
  std::as_const(made).arena().allocate(1);
#endif
}
