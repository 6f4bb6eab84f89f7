// SPDX-License-Identifier: Apache-2.0
// Runs one loop n times, for callgrind to count: bench/instructions takes the slope between two values of n,
// which is what one turn costs whatever the program does besides.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>

#include <tidemark/tidemark.hpp>

#if defined(TIDEMARK_PEER_LLVM)
#include <llvm/Support/Allocator.h>
#endif

namespace {

using namespace tidemark;

constexpr std::size_t room = 64 * MiB;

/// The block is needed, by somebody whom the compiler does not know.
void use(void* block) { asm volatile("" : : "r"(block) : "memory"); }

template <class T>
T* hidden(T* pointer) {
  asm volatile("" : "+r"(pointer));
  return pointer;
}

std::size_t hidden(std::size_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

template <class Body>
[[gnu::noinline]] void turn(std::size_t n, Body body) {
  for (std::size_t i = 0; i < n; ++i) body();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return std::fprintf(stderr, "usage: instruction_loops CASE N\n"), 2;
  char const* const what = arguments[1];
  const std::size_t n = std::strtoull(arguments[2], nullptr, 10);
  const auto is = [&](char const* name) { return std::strcmp(what, name) == 0; };

  arena step{{.reserve = room}};
  (void)step.allocate(room);  // so that no turn commits memory
  step.reset();
  std::pmr::memory_resource* const resource = hidden<std::pmr::memory_resource>(&step);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  std::pmr::monotonic_buffer_resource monotonic{buffer.get(), room};
  std::pmr::memory_resource* const other = hidden<std::pmr::memory_resource>(&monotonic);

  if (is("empty")) turn(n, [] { use(nullptr); });
  else if (is("arena_inline_8")) turn(n, [&] { use(step.allocate(8)); });
  else if (is("arena_inline_64")) turn(n, [&] { use(step.allocate(64)); });
  else if (is("arena_push_double_zeroed")) turn(n, [&] { use(step.push<double>()); });
  else if (is("arena_inline_any_size")) turn(n, [&] { use(step.allocate(hidden(std::size_t{64}))); });
  else if (is("arena_virtual_64")) turn(n, [&] { use(resource->allocate(64)); });
  else if (is("arena_scope_and_one_block")) {
    turn(n, [&] {
      arena_scope scope{step};
      use(scope.allocate(64));
    });
  } else if (is("arena_mark_and_rewind")) {
    turn(n, [&] {
      const arena_mark mark = step.mark();
      use(step.allocate(64));
      step.rewind(mark);
    });
  } else if (is("monotonic_virtual_64")) turn(n, [&] { use(other->allocate(64)); });
  else if (is("malloc_and_free_64")) {
    turn(n, [&] {
      void* block = std::malloc(64);
      use(block);
      std::free(block);
    });
  }
#if defined(TIDEMARK_PEER_LLVM)
  else if (is("llvm_bump_64")) {
    llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, room, room> bump;
    turn(n, [&] { use(bump.Allocate(64, llvm::Align(16))); });
  }
#endif
  else {
    return std::fprintf(stderr, "instruction_loops: there is no case '%s'\n", what), 2;
  }
}
