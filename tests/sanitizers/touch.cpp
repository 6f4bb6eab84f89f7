// SPDX-License-Identifier: Apache-2.0
// Touches memory of an arena or a workspace according to its argument, so that a test sees the sanitizer's
// report. Without a sanitizer every case ends with status 0: this program is wrong on purpose.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory_resource>

#include <tidemark/arena/arena.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>

// Uses a workspace in all ways that move, keep or return memory. @return true if all results are right
template <class Workspace>
bool uses_rightly(Workspace& ws) {
  using scope = typename Workspace::template scope<>;
  for (int i = 1; i < 20; ++i) {
    scope outer{ws};
    auto numbers = outer.template zeros<double>(100 * i);  // grows
    auto bits = outer.trues(10 * i);
    auto* tensor = acquire_tensor<float>(outer, i, 3);
    {
      scope inner{ws};
      auto more = inner.template ones<double>(1000 / i);  // shrinks
      numbers[0] += more[0];
      (void)inner.template acquire<double>(0);
      if (i % 5 == 0) (void)ws.trim();
    }
    static_cast<float*>(tensor->data)[3 * i - 1] = 1;
    if (numbers[0] + numbers[100 * i - 1] != 1 || !bits.all()) return false;
  }
  (void)ws.compact({.factor = 1, .least_bytes = 1});
  auto outside = ws.template ones<double>(50);
  if (outside[49] != 1) return false;
  ws.reset();
  ws.release();
  return ws.template zeros<double>(10)[9] == 0;
}

// A sanitizer does not see the blocks in a pool's slabs: the pool says it.
template <class Pool>
void misuse_pool(char const* what) {
  const auto is = [&](char const* name) { return std::strcmp(what, name) == 0; };
  Pool blocks{std::pmr::new_delete_resource()};
  void* const block = blocks.allocate(64);
  alignas(64) static std::byte foreign[64];
  if (is("lost")) return;
  if (is("double_free")) blocks.deallocate(block, 64);
  if (is("wrong_size")) blocks.deallocate(block, 640);
  if (is("foreign")) blocks.deallocate(foreign, 64);
  if (is("interior")) blocks.deallocate(static_cast<std::byte*>(block) + 16, 16);
  if (is("released")) return blocks.release();
  blocks.deallocate(block, 64);
}

int main(int, char** arguments) {
  char const* what = arguments[1] != nullptr ? arguments[1] : "";
  const auto is = [&](char const* name) { return std::strcmp(what, name) == 0; };
  tidemark::arena step{{.reserve = 64 * tidemark::KiB, .name = "step"}};
  tidemark::workspace ws;
  int volatile sink = 0;
  auto* kept = step.push<int>(41);
  if (is("clean")) {
    for (int i = 0; i < 20; ++i) {
      const tidemark::arena::scope scope{step};
      auto zeros = step.push_array<int>(5000);  // crosses chunks
      zeros[4999] += *kept;
      if (zeros[4999] != 41) return 1;
    }
    step.reset();
    (void)step.trim();
    if (*step.push<int>() != 0) return 1;
    // A block that is changed in place, an arena on an arena, one that gives all back and goes on.
    auto* grows = static_cast<char*>(step.allocate(100));
    if (!step.expand(grows, 100, 5000)) return 1;
    std::memset(grows, 1, 5000);
    {
      tidemark::upstream_arena nested{&step};
      std::memset(nested.allocate(20'000), 1, 20'000);
      nested.pop(1);
      nested.release();
      nested.pop(1);
      std::memset(nested.allocate(10), 1, 10);
    }
    step.release();
    std::memset(step.allocate(10), 1, 10);
    // Workspaces on the global pool, on an arena, on the heap, and one that fills returned memory.
    tidemark::workspace on_pool;
    tidemark::workspace on_arena{&step};
    tidemark::workspace on_heap{std::pmr::new_delete_resource()};
    tidemark::checked_workspace checked{std::pmr::new_delete_resource()};
    if (!uses_rightly(on_pool) || !uses_rightly(on_arena) || !uses_rightly(on_heap)) return 1;
    tidemark::workspace unpooled{{.pooling = false}};
    if (!uses_rightly(checked) || !uses_rightly(unpooled)) return 1;
    // Memory that was lent is its owner's again.
    static unsigned char lent[4096];
    {
      tidemark::borrowed_arena borrower{lent, sizeof lent};
      const tidemark::borrowed_arena::scope scope{borrower};
      (void)borrower.allocate(100);
    }
    std::memset(lent, 1, sizeof lent);
  } else if (is("rewound")) {
    int* late = nullptr;
    {
      const tidemark::arena::scope scope{step};
      late = step.push<int>(1);
    }
    sink = *late;
  } else if (is("rewound_tail")) {
    const tidemark::arena_mark mark = step.mark();
    auto* late = static_cast<int*>(step.push_bytes(4096));
    (void)step.allocate(60 * tidemark::KiB);  // in a second chunk
    step.rewind(mark);
    *late = 1;
  } else if (is("rewound_chunk")) {
    const tidemark::arena_mark mark = step.mark();
    (void)step.allocate(60 * tidemark::KiB);
    auto* late = static_cast<int*>(step.push_bytes(4096));
    step.rewind(mark);
    *late = 1;
  } else if (is("deallocated")) {
    auto* late = static_cast<int*>(step.push_bytes(64));
    step.deallocate(late, 64);
    *late = 1;
  } else if (is("beyond")) {
    auto* block = static_cast<char*>(step.push_bytes(100));
    block[100] = 1;
  } else if (is("never_allocated")) {
    *(kept + 1000) = 1;
  } else if (is("uninitialized")) {
    auto* fresh = step.push<int>(tidemark::uninitialized);
    if (*fresh == 7) sink = 1;
  } else if (is("workspace_ended")) {
    int* late = nullptr;
    {
      tidemark::workspace::scope<> scope{ws};
      late = scope.ones<int>(100).data();
    }
    sink = late[99];
  } else if (is("workspace_beyond")) {
    {
      tidemark::workspace::scope<> scope{ws};
      (void)scope.acquire<int>(100);
    }
    tidemark::workspace::scope<> scope{ws};
    scope.acquire<int>(10).data()[10] = 1;  // the slot has room for more
  } else if (is("workspace_uninitialized")) {
    {
      tidemark::workspace::scope<> scope{ws};
      (void)scope.ones<int>(100);
    }
    tidemark::workspace::scope<> scope{ws};
    if (scope.acquire<int>(100)[7] == 1) sink = 1;  // the memory of the previous scope is now freed
  } else if (std::strncmp(what, "pool_", 5) == 0) {
    misuse_pool<tidemark::pool>(what + 5);
  } else if (std::strncmp(what, "threads_pool_", 13) == 0) {
    misuse_pool<tidemark::synchronized_pool>(what + 13);
  } else {
    std::printf("unknown case\n");
    return 2;
  }
  return sink == -1 ? 1 : 0;
}
