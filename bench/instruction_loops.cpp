// SPDX-License-Identifier: Apache-2.0
// Runs one loop n times, for callgrind to count: bench/instructions takes the slope between two values of n,
// which is what one turn costs whatever the program does besides.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <vector>

#include <tidemark/tidemark.hpp>

#if defined(TIDEMARK_PEER_LLVM)
#include <llvm/Support/Allocator.h>
#endif

namespace {

using namespace tidemark;

constexpr std::size_t room = 64 * MiB;

/// Blocks of one size, last in first out: an upstream that costs the same whatever is live.
class recycling_resource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (bytes < large_bytes) return std::pmr::new_delete_resource()->allocate(bytes, align);
    if (free_.empty()) return std::pmr::new_delete_resource()->allocate(bytes, align);
    void* const block = free_.back();
    free_.pop_back();
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    if (bytes < large_bytes) return std::pmr::new_delete_resource()->deallocate(block, bytes, align);
    free_.push_back(block);  // the program ends before it would matter that it is never given back
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

 public:
  static constexpr std::size_t large_bytes = 16'385;

 private:
  std::vector<void*> free_;
};

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

/// One block of 64 bytes allocated and freed through the vtable.
void pairs(std::size_t n, std::pmr::memory_resource& resource) {
  std::pmr::memory_resource* const through_vtable = hidden(&resource);
  turn(n, [&] {
    void* const block = through_vtable->allocate(64);
    use(block);
    through_vtable->deallocate(block, 64);
  });
}

void pool_pairs(std::size_t n, std::size_t free_blocks) {
  pool resource;
  std::vector<void*> blocks(free_blocks);
  for (void*& block : blocks) block = resource.allocate(64);
  for (void* block : blocks) resource.deallocate(block, 64);
  pairs(n, resource);
}

/// A block beyond the classes freed and allocated, among `live` of them.
void large_pairs(std::size_t n, std::size_t live) {
  recycling_resource upstream;
  pool resource{&upstream};
  std::vector<void*> blocks(live);
  for (void*& block : blocks) block = resource.allocate(recycling_resource::large_bytes);
  std::size_t i = 0;
  turn(n, [&] {
    resource.deallocate(blocks[i], recycling_resource::large_bytes);
    use(blocks[i] = resource.allocate(recycling_resource::large_bytes));
    i = i + 1 < live ? i + 1 : 0;
  });
}

/// An epoch in which that many blocks are allocated and reclaimed, on an arena.
void epochs(std::size_t n, std::size_t blocks, arena& upstream) {
  epoch_resource memory{&upstream};
  std::pmr::memory_resource* const through_vtable = hidden<std::pmr::memory_resource>(&memory);
  turn(n, [&] {
    arena_scope scope{upstream};
    epoch e{memory};
    for (std::size_t i = 0; i < blocks; ++i) use(through_vtable->allocate(64));
  });
}

/// What the use-after-epoch detector costs while it is off.
void require_operands(std::size_t n) {
  epoch_resource memory;
  const buffer<float> lhs{memory, 8}, rhs{memory, 8};
  buffer<float> const *const a = hidden(&lhs), *const b = hidden(&rhs);
  turn(n, [&] {
    require_live("mul", {{"lhs", *a}, {"rhs", *b}});
    use(nullptr);
  });
}

/// An access with the question, or the same without.
void access_buffer(std::size_t n, bool asks) {
  epoch_resource memory;
  const buffer<float> made{memory, 8};
  buffer<float> const* const b = hidden(&made);
  if (asks) turn(n, [&] { use(b->data()); });
  else turn(n, [&] { use(b->is_live() ? b->storage().address() : nullptr); });
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
  } else if (is("detector_off")) require_operands(n);
  else if (is("buffer_access_detector_off")) access_buffer(n, true);
  else if (is("buffer_access_unasked")) access_buffer(n, false);
  else if (is("pool_pair_64")) pool_pairs(n, 1);
  else if (is("pool_pair_64_of_50000_free")) pool_pairs(n, 50'000);
  else if (is("pool_large_pair_of_50")) large_pairs(n, 50);
  else if (is("pool_large_pair_of_50000")) large_pairs(n, 50'000);
  else if (is("synchronized_pool_pair_64")) {
    synchronized_pool pool;
    pairs(n, pool);
  } else if (is("std_pool_pair_64")) {
    std::pmr::unsynchronized_pool_resource pool;
    pairs(n, pool);
  } else if (is("epoch_with_nothing_in_it")) epochs(n, 0, step);
  else if (is("epoch_of_100_blocks")) epochs(n, 100, step);
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
