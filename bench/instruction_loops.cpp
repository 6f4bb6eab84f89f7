// SPDX-License-Identifier: Apache-2.0
// Runs one loop n times for callgrind. bench/instructions computes the slope between two values of n, which
// is the cost of one turn without the rest of the program.
#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>
#if defined(TIDEMARK_PEER_LLVM)
#include <llvm/Support/Allocator.h>
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
#include <google/protobuf/arena.h>
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
#include <foonathan/memory/memory_stack.hpp>
#endif

#include "device_pairs.hpp"
#include "modelled_device.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t room = 64 * MiB;

/// Reuses blocks of one size in LIFO order: an upstream whose cost does not depend on the live blocks.
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
    free_.push_back(block);  // never returned; the program ends before that matters
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

 public:
  static constexpr std::size_t large_bytes = 16'385;

 private:
  std::vector<void*> free_;
};

/// Marks the block as used in a way that the compiler cannot see through.
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

/// 24 blocks of 256 KiB in chunks of `chunk_bytes`, released by a rewind.
void arena_batches(std::size_t n, std::size_t chunk_bytes) {
  arena step{{.reserve = chunk_bytes}};
  turn(n, [&] {
    const arena_mark mark = step.mark();
    for (int i = 0; i < 24; ++i) use(step.allocate(256 * KiB));
    step.rewind(mark);
  });
}

/// One block allocated and freed through the vtable.
template <std::size_t Bytes = 64>
void pairs(std::size_t n, std::pmr::memory_resource& resource) {
  std::pmr::memory_resource* const through_vtable = hidden(&resource);
  turn(n, [&] {
    void* const block = through_vtable->allocate(Bytes);
    use(block);
    through_vtable->deallocate(block, Bytes);
  });
}

void pool_pairs(std::size_t n, std::size_t free_blocks) {
  pool resource;
  std::vector<void*> blocks(free_blocks);
  for (void*& block : blocks) block = resource.allocate(64);
  for (void* block : blocks) resource.deallocate(block, 64);
  pairs(n, resource);
}

/// Pairs in `pools` pools in turn. @param apart the thread uses one pool of this many
void pairs_in_many_pools(std::size_t n, std::size_t pools, std::size_t apart) {
  std::vector<std::unique_ptr<synchronized_pool>> made(pools * apart);
  for (auto& pool : made) pool = std::make_unique<synchronized_pool>();
  std::size_t i = 0;
  turn(n, [&] {
    std::pmr::memory_resource* const through_vtable = hidden(made[i].get());
    void* const block = through_vtable->allocate(64);
    use(block);
    through_vtable->deallocate(block, 64);
    i = i + apart < made.size() ? i + apart : 0;
  });
}

/// Frees and allocates a block beyond the size classes, among `live` such blocks.
void large_pairs(std::size_t n, std::size_t live) {
  recycling_resource upstream;
  pool resource{{.size_classes = {64}}, &upstream};
  std::vector<void*> blocks(live);
  for (void*& block : blocks) block = resource.allocate(recycling_resource::large_bytes);
  std::size_t i = 0;
  turn(n, [&] {
    resource.deallocate(blocks[i], recycling_resource::large_bytes);
    use(blocks[i] = resource.allocate(recycling_resource::large_bytes));
    i = i + 1 < live ? i + 1 : 0;
  });
}

/// Replaces a block of a device pool among 10,000. @return true if `what` is such a case
bool run_device_pools(std::string_view what, std::size_t n) {
  bench::device_pair_kind kind;
  if (what == "device_pool_pair_small") kind.large = false;
  else if (what == "device_pool_pair_large_random") kind.random = true;
  else if (what == "device_pool_pair_large_repeating") kind.repeats = true;
  else if (what != "device_pool_pair_large_fifo") return false;
  test::modelled_device device{128 * GiB};
  device_pool blocks{device_pool_options{}, device};
  bench::device_pairs pairs{blocks, kind};
  turn(n, [&] { pairs.replace_one(); });
  return true;
}

// ---- graph arenas -----------------------------------------------------------------------------------------

/// Blocks of 256 bytes at addresses that are never touched.
void graph_allocations(std::size_t n) {
  graph_arena made{byte_range{0x1'0000'0000, n * 256}};
  graph_arena& arena = *hidden(&made);
  turn(n, [&] { use(arena.allocate(hidden(std::size_t{256}))); });
}

/// Allocates a block and frees the oldest, with `live` blocks in use.
void graph_pairs(std::size_t n, std::size_t live) {
  graph_arena made{byte_range{0x1'0000'0000, (n + live) * 256}};
  graph_arena& arena = *hidden(&made);
  std::vector<void*> blocks(live);
  for (void*& block : blocks) block = arena.allocate(256);
  std::size_t i = 0;
  turn(n, [&] {
    arena.deallocate(blocks[i], hidden(std::size_t{256}));
    use(blocks[i] = arena.allocate(hidden(std::size_t{256})));
    i = i + 1 < live ? i + 1 : 0;
  });
}

/// Steps by a plan, each of 64 blocks of 256 bytes. Each block is freed before the next one, or all at the
/// end.
template <bool PairsOnly>
void planned_steps(std::size_t n) {
  planned_arena made;
  planned_arena& memory = *hidden(&made);
  std::array<void*, 64> blocks;
  const auto one_step = [&] {
    const planned_arena::step step{memory};
    for (void*& block : blocks) {
      use(block = memory.allocate(hidden(std::size_t{256})));
      if constexpr (PairsOnly) memory.deallocate(block, hidden(std::size_t{256}));
    }
    if constexpr (!PairsOnly)
      for (void* block : blocks) memory.deallocate(block, hidden(std::size_t{256}));
  };
  one_step();  // recorded
  one_step();  // plans the step
  turn(n, one_step);
}

/// An epoch on an arena in which `blocks` blocks are allocated and reclaimed.
void epochs(std::size_t n, std::size_t blocks, arena& upstream) {
  epoch_resource memory{&upstream};
  std::pmr::memory_resource* const through_vtable = hidden<std::pmr::memory_resource>(&memory);
  turn(n, [&] {
    arena::scope scope{upstream};
    epoch e{memory};
    for (std::size_t i = 0; i < blocks; ++i) use(through_vtable->allocate(64));
  });
}

/// An epoch of 100 buffers, which are destroyed after it.
void epochs_of_buffers(std::size_t n, arena& upstream) {
  epoch_resource made{&upstream};
  epoch_resource& memory = *hidden(&made);
  std::vector<buffer<std::byte>> handles;
  handles.reserve(100);
  turn(n, [&] {
    arena::scope scope{upstream};
    {
      epoch e{memory};
      for (int i = 0; i < 100; ++i) use(&handles.emplace_back(memory, 64));
    }
    handles.clear();
  });
}

/// Allocates and deallocates a small block in an open epoch.
void pairs_in_epoch(std::size_t n, arena& upstream) {
  epoch_resource memory{&upstream};
  epoch e{memory};
  pairs(n, memory);
}

/// Returns four addresses in turn: an upstream that does almost nothing. A chunk of slabs fits behind each.
class four_blocks final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t, std::size_t) override { return memory_.data() + next_++ % 4 * 4096; }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  alignas(16 * KiB) std::array<std::byte, 3 * 4096 + 64 * KiB> memory_;  // aligned like ranges of slabs
  std::size_t next_ = 0;
};

/// Addresses that an earlier epoch used: those of buffers, of a slab around them, or none.
enum class epoch_had { nothing, buffers, slabs };

/// Allocates and deallocates a block without an open epoch, through the class.
void epoch_pairs(std::size_t n, epoch_had before) {
  four_blocks upstream;
  epoch_resource made{hidden<std::pmr::memory_resource>(&upstream)};
  epoch_resource& memory = *hidden(&made);
  std::array<buffer<std::byte>, 4> buffers;
  if (before != epoch_had::nothing) {
    epoch e{memory};
    if (before == epoch_had::slabs) use(memory.allocate(64));
    else
      for (auto& each : buffers) each = buffer<std::byte>{memory, 64};
  }
  turn(n, [&] {
    void* const block = memory.allocate(64);
    use(block);
    memory.deallocate(block, 64);
  });
}

/// The cost of the disabled use-after-epoch detector.
void require_operands(std::size_t n) {
  epoch_resource memory;
  const buffer<float> lhs{memory, 8}, rhs{memory, 8};
  buffer<float> const *const a = hidden(&lhs), *const b = hidden(&rhs);
  turn(n, [&] {
    require_live("mul", {{"lhs", *a}, {"rhs", *b}});
    use(nullptr);
  });
}

/// An access with the detector's check, or the same access without it.
void access_buffer(std::size_t n, bool asks) {
  epoch_resource memory;
  const buffer<float> made{memory, 8};
  buffer<float> const* const b = hidden(&made);
  if (asks) turn(n, [&] { use(b->data()); });
  else turn(n, [&] { use(b->is_live() ? b->storage().address : nullptr); });
}

// ---- workspaces -------------------------------------------------------------------------------------------

/// A workspace of a build without checks, in any configuration of this program.
using plain_workspace = basic_workspace<0>;

/// Numbers of elements that the compiler does not know.
struct amounts {
  std::size_t a = hidden(std::size_t{100}), b = hidden(std::size_t{200}), c = hidden(std::size_t{300});
};

template <std::size_t Number>
struct other_element {
  int value;
};

/// Types without their own list, each with a slot.
template <class Workspace, std::size_t... Numbers>
void register_others(Workspace& ws, std::index_sequence<Numbers...>) {
  typename Workspace::template scope<> scope{ws};
  (use(scope.template acquire<other_element<Numbers>>(10).data()), ...);
}

template <class Scope>
void acquire_three(Scope& scope, amounts const& n) {
  use(scope.template acquire<double>(n.a).data());
  use(scope.template acquire<double>(n.b).data());
  use(scope.template acquire<double>(n.c).data());
}

/// A scope in which three arrays of double are acquired.
template <class Workspace, class... Types>
void workspace_scopes(std::size_t n, Workspace& ws) {
  Workspace& hidden_ws = *hidden(&ws);
  const amounts amount;
  turn(n, [&] {
    typename Workspace::template scope<Types...> scope{hidden_ws};
    acquire_three(scope, amount);
  });
}

/// A hundred acquisitions in a scope, which make the cost of the scope small.
template <class... Types>
void workspace_hundreds(std::size_t n) {
  plain_workspace made;
  plain_workspace& ws = *hidden(&made);
  const amounts amount;
  turn(n, [&] {
    plain_workspace::scope<Types...> scope{ws};
    for (int i = 0; i < 100; ++i) use(scope.template acquire<double>(amount.a).data());
  });
}

/// Hand-written slots of one element type. The first `active` slots are in use, a scope saves the previous
/// number, and each slot stores the requested size, so that unused capacity can be found.
struct hand_written_slots {
  struct slot {
    double* data;
    std::size_t capacity, size;
  };
  static constexpr std::size_t room = 128;

  double* acquire(std::size_t n) {
    slot& next = slots[active];
    if (n > next.capacity) [[unlikely]]
      grow(next, n);
    next.size = n;
    ++active;
    return next.data;
  }
  [[gnu::cold, gnu::noinline]] void grow(slot& small, std::size_t n) {
    if (active == room) std::abort();
    std::free(small.data);
    small.data = static_cast<double*>(std::aligned_alloc(64, (n * sizeof(double) + 63) / 64 * 64));
    small.capacity = n;
  }

  std::size_t active = 0;
  slot* slots = new slot[room + 1]();  // the last slot has no capacity; the program ends before deallocating
};

void hand_written_scopes(std::size_t n) {
  hand_written_slots made;
  hand_written_slots& slots = *hidden(&made);
  const amounts amount;
  turn(n, [&] {
    const std::size_t saved = slots.active;
    use(slots.acquire(amount.a));
    use(slots.acquire(amount.b));
    use(slots.acquire(amount.c));
    slots.active = saved;
  });
}

void hand_written_hundreds(std::size_t n) {
  hand_written_slots made;
  hand_written_slots& slots = *hidden(&made);
  const amounts amount;
  turn(n, [&] {
    const std::size_t saved = slots.active;
    for (int i = 0; i < 100; ++i) use(slots.acquire(amount.a));
    slots.active = saved;
  });
}

/// Hand-written slots for eight element types. A scope does not know which types it will use. The first
/// acquisition of a type in a scope saves the number of its active slots, and the end of the scope restores
/// all saved numbers.
struct hand_written_lists {
  struct list {
    hand_written_slots slots;
    std::size_t scope = 0;  // the scope that saved slots.active
  };
  struct note {
    list* of;
    std::size_t active, scope;
  };

  double* acquire(std::size_t type, std::size_t n) {
    list& of = lists[type];
    if (of.scope != scope) {
      if (end == limit) [[unlikely]]
        std::abort();
      *end++ = {&of, of.slots.active, of.scope};
      of.scope = scope;
    }
    return of.slots.acquire(n);
  }

  std::size_t scope = 0, scopes = 0;
  note* end = new note[64];
  note* limit = end + 64;
  std::array<list, 8> lists;
};

void hand_written_scopes_of_any_type(std::size_t n) {
  hand_written_lists made;
  hand_written_lists& lists = *hidden(&made);
  const amounts amount;
  turn(n, [&] {
    hand_written_lists::note* const first = lists.end;
    const std::size_t outer = lists.scope;
    lists.scope = ++lists.scopes;
    use(lists.acquire(0, amount.a));
    use(lists.acquire(0, amount.b));
    use(lists.acquire(0, amount.c));
    while (lists.end != first) {
      hand_written_lists::note const last = *--lists.end;
      last.of->slots.active = last.active;
      last.of->scope = last.scope;
    }
    lists.scope = outer;
  });
}

/// Scopes of one type on a workspace that knows `Others` other types.
template <std::size_t Others>
void workspace_scopes_beside(std::size_t n) {
  plain_workspace ws;
  register_others(ws, std::make_index_sequence<Others>{});
  workspace_scopes(n, ws);
}

/// Scopes of a type without its own list, which is looked up each time.
void workspace_scopes_of_other_type(std::size_t n) {
  plain_workspace made;
  plain_workspace& ws = *hidden(&made);
  turn(n, [&] {
    plain_workspace::scope<> scope{ws};
    use(scope.acquire<other_element<0>>(100).data());
  });
}

template <class Workspace>
void workspace_scopes_on_new(std::size_t n) {
  Workspace ws;
  workspace_scopes(n, ws);
}

template <class Workspace>
void empty_workspace_scopes(std::size_t n) {
  Workspace made;
  Workspace& ws = *hidden(&made);
  turn(n, [&] {
    typename Workspace::template scope<> scope{ws};
    use(&scope);
  });
}

/// Three arrays of double from a workspace that keeps nothing, and directly from its upstream.
void unpooled_workspace_scopes(std::size_t n) {
  four_blocks upstream;
  plain_workspace ws{{.pooling = false, .upstream = &upstream}};
  workspace_scopes(n, ws);
}
void allocate_three(std::size_t n) {
  four_blocks made;
  std::pmr::memory_resource& upstream = *hidden<std::pmr::memory_resource>(&made);
  const amounts amount;
  turn(n, [&] {
    std::array<void*, 3> blocks;
    const std::array bytes{amount.a * sizeof(double), amount.b * sizeof(double), amount.c * sizeof(double)};
    for (std::size_t i = 0; i < 3; ++i) use(blocks[i] = upstream.allocate(bytes[i], 64));
    for (std::size_t i = 3; i-- > 0;) upstream.deallocate(blocks[i], bytes[i], 64);
  });
}

/// Runs `what` if it is a case of workspaces. @return true if it ran
bool run_workspaces(char const* what, std::size_t n) {
  const auto is = [&](char const* name) { return std::strcmp(what, name) == 0; };
  if (is("workspace_acquire")) workspace_scopes_on_new<plain_workspace>(n);
  else if (is("workspace_acquire_typed")) {
    plain_workspace ws;
    workspace_scopes<plain_workspace, double>(n, ws);
  } else if (is("workspace_plain_slots")) hand_written_scopes(n);
  else if (is("workspace_plain_lists")) hand_written_scopes_of_any_type(n);
  else if (is("workspace_100_acquires")) workspace_hundreds(n);
  else if (is("workspace_100_acquires_typed")) workspace_hundreds<double>(n);
  else if (is("workspace_plain_100_acquires")) hand_written_hundreds(n);
  else if (is("workspace_checked_acquire")) workspace_scopes_on_new<checked_workspace>(n);
  else if (is("workspace_empty_scope")) empty_workspace_scopes<plain_workspace>(n);
  else if (is("workspace_scope_of_one_type")) workspace_scopes_beside<0>(n);
  else if (is("workspace_scope_of_one_type_of_201")) workspace_scopes_beside<200>(n);
  else if (is("workspace_scope_of_other_type")) workspace_scopes_of_other_type(n);
  else if (is("workspace_acquire_pooling_off")) unpooled_workspace_scopes(n);
  else if (is("workspace_upstream_alone")) allocate_three(n);
  else return false;
  return true;
}

// ---- peers ------------------------------------------------------------------------------------------------

/// Temporaries of a function without the library: a monotonic resource on its own buffer.
void monotonic_scopes(std::size_t n) {
  turn(n, [] {
    std::array<std::byte, 2048> buffer;
    std::pmr::monotonic_buffer_resource step{buffer.data(), buffer.size()};
    use(step.allocate(64));
  });
}

/// A hundred blocks owned one by one, as without an epoch.
void owned_hundreds(std::size_t n) {
  using block = std::array<std::byte, 64>;
  std::vector<std::unique_ptr<block>> owned;
  turn(n, [&] {
    for (int i = 0; i < 100; ++i) use(owned.emplace_back(std::make_unique_for_overwrite<block>()).get());
    owned.clear();
  });
}

/// Runs `what` if it is a case of peers. @return true if it ran. Each peer has a case like
/// "mimalloc_pair_64".
bool run_peers(char const* what, std::size_t n) {
  const std::string_view name{what};
  if (name == "monotonic_scope_and_one_block") monotonic_scopes(n);
  else if (name == "unique_ptrs_of_100_blocks") owned_hundreds(n);
#if defined(TIDEMARK_PEER_LLVM)
  else if (name == "llvm_bump_64") {
    llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, room, room> bump;
    turn(n, [&] { use(bump.Allocate(64, llvm::Align(16))); });
  }
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
  else if (name == "protobuf_arena_64") {
    const auto buffer = std::make_unique_for_overwrite<char[]>(room);
    google::protobuf::Arena bump{buffer.get(), room};
    turn(n, [&] { use(google::protobuf::Arena::CreateArray<char>(&bump, 64)); });
  }
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
  else if (name == "foonathan_stack_64") {
    foonathan::memory::memory_stack<> bump{room};
    turn(n, [&] { use(bump.allocate(64, 16)); });
  }
#endif
  else if (name.ends_with("_pair_64")) {
    bench::peer const* const peer = bench::find_peer(name.substr(0, name.size() - 8));
    if (peer == nullptr) return false;
    pairs(n, *peer->make());
  } else return false;
  return true;
}

/// A coroutine of numbers. The base of its promise chooses the place of its frame.
template <class PromiseBase>
struct number_source {
  struct promise_type : PromiseBase {
    number_source get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int given) noexcept {
      value = given;
      return {};
    }
    static void return_void() noexcept {}
    static void unhandled_exception() noexcept { std::abort(); }
    int value = 0;
  };
  std::coroutine_handle<promise_type> handle;
};

struct default_new {};

template <class PromiseBase>
[[gnu::noinline]] number_source<PromiseBase> numbers(std::allocator_arg_t, frame_resource) {
  for (int i = 0;; ++i) co_yield i;
}

/// Calls a coroutine, resumes it once and destroys it.
template <class PromiseBase = pmr_promise<>>
void coroutines(std::size_t n, std::pmr::memory_resource& memory) {
  turn(n, [&] {
    const auto source = numbers<PromiseBase>(std::allocator_arg, memory);
    source.handle.resume();
    use(source.handle.address());
    source.handle.destroy();
  });
}

bool run_coroutines(std::string_view what, std::size_t n, arena& step) {
  pool blocks;
  std::pmr::unsynchronized_pool_resource std_blocks;
  if (what == "coroutine_on_malloc") coroutines<default_new>(n, *std::pmr::new_delete_resource());
  else if (what == "coroutine_on_arena") coroutines(n, step);
  else if (what == "coroutine_on_pool") coroutines(n, blocks);
  else if (what == "coroutine_on_std_pool") coroutines(n, std_blocks);
  else return false;
  return true;
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
  else if (is("shared_arena_handle_64") || is("shared_arena_virtual_64")) {
    shared_arena team{{.reserve = 2 * room}, {.min_extent_bytes = room, .max_extent_bytes = room}};
    local_arena& local = team.local();
    std::pmr::memory_resource* const any = hidden(static_cast<std::pmr::memory_resource*>(&team));
    if (is("shared_arena_virtual_64")) turn(n, [&] { use(any->allocate(64)); });
    else turn(n, [&] { use(local.allocate(64)); });
  } else if (is("arena_scope_and_one_block")) {
    turn(n, [&] {
      arena::scope scope{step};
      use(scope.allocate(64));
    });
  } else if (is("arena_mark_and_rewind")) {
    turn(n, [&] {
      const arena_mark mark = step.mark();
      use(step.allocate(64));
      step.rewind(mark);
    });
  } else if (is("arena_batch_within_a_chunk")) arena_batches(n, 64 * MiB);
  else if (is("arena_batch_across_chunks")) arena_batches(n, 1 * MiB);
  else if (is("monotonic_virtual_64")) turn(n, [&] { use(other->allocate(64)); });
  else if (is("malloc_and_free_64")) {
    turn(n, [&] {
      void* block = std::malloc(64);
      use(block);
      std::free(block);
    });
  } else if (is("detector_off")) require_operands(n);
  else if (is("buffer_access_detector_off")) access_buffer(n, true);
  else if (is("buffer_access_unasked")) access_buffer(n, false);
  else if (is("graph_allocate")) graph_allocations(n);
  else if (is("graph_pair_of_64")) graph_pairs(n, 64);
  else if (is("graph_pair_of_8192")) graph_pairs(n, 8192);
  else if (is("planned_step_of_64_pairs")) planned_steps<true>(n);
  else if (is("planned_step_of_64_blocks")) planned_steps<false>(n);
  else if (is("pool_pair_64")) pool_pairs(n, 1);
  else if (is("pool_pair_64_of_50000_free")) pool_pairs(n, 50'000);
  else if (is("pool_large_pair_of_50")) large_pairs(n, 50);
  else if (is("pool_large_pair_of_50000")) large_pairs(n, 50'000);
  else if (is("synchronized_pool_pair_64")) {
    synchronized_pool pool;
    pairs(n, pool);
  } else if (is("synchronized_pool_pair_64KiB")) {
    synchronized_pool pool;
    pairs<64 * KiB>(n, pool);
  } else if (is("synchronized_pool_pair_in_8_pools")) pairs_in_many_pools(n, 8, 1);
  else if (is("synchronized_pool_pair_in_64_pools")) pairs_in_many_pools(n, 64, 1);
  else if (is("synchronized_pool_pair_in_256_pools")) pairs_in_many_pools(n, 256, 1);
  else if (is("synchronized_pool_pair_in_64_pools_of_448")) pairs_in_many_pools(n, 64, 7);
  else if (is("epoch_upstream_alone")) {
    four_blocks upstream;
    pairs(n, upstream);
  } else if (is("epoch_pair_before_any")) epoch_pairs(n, epoch_had::nothing);
  else if (is("epoch_pair_between")) epoch_pairs(n, epoch_had::buffers);
  else if (is("epoch_pair_where_slabs_were")) epoch_pairs(n, epoch_had::slabs);
  else if (is("epoch_with_nothing_in_it")) epochs(n, 0, step);
  else if (is("epoch_of_one_block")) epochs(n, 1, step);
  else if (is("epoch_of_100_blocks")) epochs(n, 100, step);
  else if (is("epoch_of_100_buffers")) epochs_of_buffers(n, step);
  else if (is("epoch_pair_of_small_blocks")) pairs_in_epoch(n, step);
  else if (run_workspaces(what, n) || run_coroutines(what, n, step) || run_device_pools(what, n)) return 0;
  else if (!run_peers(what, n)) {
    return std::fprintf(stderr, "instruction_loops: there is no case '%s'\n", what), 2;
  }
}
