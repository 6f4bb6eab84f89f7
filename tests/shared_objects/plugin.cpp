// SPDX-License-Identifier: Apache-2.0
// A plugin that links the static library, as a program loads it late. It uses every part that reads
// thread-local variables.
#include <cstddef>
#include <memory_resource>
#include <thread>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

namespace {

bool allocates_on_this_thread() {
  tidemark::synchronized_pool blocks;
  tidemark::epoch_resource memory{&blocks};
  tidemark::workspace& numbers = tidemark::this_thread_workspace();
  std::size_t sum = 0;
  for (int step = 0; step < 3; ++step) {
    tidemark::epoch e{memory, "step"};
    tidemark::expect_resource expected{&memory};
    std::pmr::vector<std::size_t> values({1, 2, 3}, &memory);
    tidemark::arena::scope temporary = tidemark::scratch(tidemark::no_conflicts);
    tidemark::workspace::scope<> scope{numbers};
    temporary.push_array<double>(100)[99] = 1.0;
    numbers.acquire<double>(100)[99] = 1.0;
    for (const std::size_t value : values) sum += value;
  }
  void* const block = tidemark::pooled_alloc(100);
  tidemark::pooled_free(block, 100);
  return sum == 18 && memory.depth() == 0;
}

}  // namespace

/// 1 if all parts work, on this thread and on a new one.
extern "C" [[gnu::visibility("default")]] int use_tidemark() {
  bool works = false;
  std::thread{[&] { works = allocates_on_this_thread(); }}.join();
  return works && allocates_on_this_thread() ? 1 : 0;
}
