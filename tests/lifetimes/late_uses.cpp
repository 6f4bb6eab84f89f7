// SPDX-License-Identifier: Apache-2.0
// Uses of expired memory, one per case: `CASE == n  // type | form`. Clang compiles all together, by default
// and with its analysis of lifetimes. The program runs one case by its number: under AddressSanitizer, or
// without it with arenas that trap one scope in TRAP_ONE_IN. docs/lifetimes.md has the table.
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

#if !defined(CASE)
#define CASE 0  // all
#endif
#if !defined(TRAP_ONE_IN)
#define TRAP_ONE_IN 0
#endif
#define IS_CASE(n) (CASE == 0 || CASE == n)

namespace {

constexpr arena_options options{.trap = {.one_in = TRAP_ONE_IN}};
arena permanent{options};
[[maybe_unused]] pool blocks;

#if IS_CASE(1)  // arena::scope | returned
int* returned_1() {
  arena::scope scope{permanent};
  return scope.push<int>();
}
int late_1() { return *returned_1(); }
#endif
#if IS_CASE(2)  // arena::scope | returned through a variable
std::span<int> returned_2() {
  arena::scope scope{permanent};
  std::span<int> values = scope.push_array<int>(100);
  return values;
}
int late_2() { return returned_2()[50]; }
#endif
#if IS_CASE(3)  // arena::scope | used after the brace
int late_3() {
  std::span<int> values;
  {
    arena::scope scope{permanent};
    values = scope.push_array<int>(100);
  }
  return values[50];
}
#endif
#if IS_CASE(4)  // arena::scope | used after end()
int late_4() {
  arena::scope scope{permanent};
  int* value = scope.push<int>();
  scope.end();
  return *value;
}
#endif
#if IS_CASE(5)  // arena::scope | of a temporary
int late_5() {
  int* value = arena::scope{permanent}.push<int>();
  return *value;
}
#endif
#if IS_CASE(6)  // arena::scope | kept by an object that lives longer
struct holder_6 {
  int* kept = nullptr;
};
void keep_6(holder_6& holder) {
  arena::scope scope{permanent};
  holder.kept = scope.push<int>();
}
int late_6() {
  holder_6 holder;
  keep_6(holder);
  return *holder.kept;
}
#endif
#if IS_CASE(7)  // arena::scope | a std::pmr container on its arena
int late_7() {
  std::pmr::vector<int> values{&permanent};
  {
    arena::scope scope{permanent};
    values.assign(100, 1);
  }
  const int read = values[50];
  values = std::pmr::vector<int>{&permanent};
  return read;
}
#endif
#if IS_CASE(8)  // arena | returned
int* returned_8() {
  arena local{options};
  return local.push<int>();
}
int late_8() { return *returned_8(); }
#endif
#if IS_CASE(9)  // arena | used after the brace
int late_9() {
  int* value = nullptr;
  {
    arena local{options};
    value = local.push<int>();
  }
  return *value;
}
#endif
#if IS_CASE(10)  // arena | used after rewind
int late_10() {
  const arena_mark mark = permanent.mark();
  int* value = permanent.push<int>();
  permanent.rewind(mark);
  return *value;
}
#endif
#if IS_CASE(11)  // arena | used after reset
int late_11() {
  arena local{options};
  int* value = local.push<int>();
  local.reset();
  return *value;
}
#endif
#if IS_CASE(12)  // scratch | returned through a variable
std::span<int> returned_12() {
  arena::scope temporary = scratch(no_conflicts);
  std::span<int> values = temporary.push_array<int>(100);
  return values;
}
int late_12() { return returned_12()[50]; }
#endif
#if IS_CASE(13)  // shared_arena | used after the brace of a scope
int late_13() {
  shared_arena team;
  int* value = nullptr;
  {
    shared_arena::scope scope{team};
    local_arena& local = team.local();
    value = local.push<int>();
  }
  return *value;
}
#endif
#if IS_CASE(14)  // shared_arena | used after the brace of a thread scope
int late_14() {
  shared_arena team;
  local_arena& local = team.local();
  int* value = nullptr;
  {
    local_arena::scope scope{local};
    value = scope.push<int>();
  }
  return *value;
}
#endif
#if IS_CASE(15)  // pool | used after the brace
int late_15() {
  int* value = nullptr;
  {
    pool local;
    value = static_cast<int*>(local.allocate(1000000));
  }
  return *value;
}
#endif
#if IS_CASE(16)  // pool | used after deallocate
int late_16() {
  auto* value = static_cast<int*>(blocks.allocate(sizeof(int)));
  *value = 1;
  blocks.deallocate(value, sizeof(int));
  return *value;
}
#endif
#if IS_CASE(17)  // planned_arena | used after the brace
int late_17() {
  int* value = nullptr;
  {
    planned_arena local{{.fallback = &blocks}};
    planned_arena::step step{local};
    value = static_cast<int*>(local.allocate(sizeof(int)));
    local.deallocate(value, sizeof(int));
  }
  return *value;
}
#endif
#if IS_CASE(18)  // graph_arena | used after the brace
int late_18() {
  int* value = nullptr;
  {
    graph_arena local{1 * MiB, &blocks};
    value = static_cast<int*>(local.allocate(sizeof(int)));
    local.deallocate(value, sizeof(int));
  }
  return *value;
}
#endif
#if IS_CASE(19)  // buffer | returned
int* returned_19(epoch_resource& memory) {
  buffer<int> values{memory, 100, 1};
  return values.data();
}
int late_19() {
  epoch_resource memory{&blocks};
  return *returned_19(memory);
}
#endif
#if IS_CASE(20)  // buffer | used after the brace
int late_20() {
  epoch_resource memory{&blocks};
  std::span<int> values;
  {
    buffer<int> local{memory, 100, 1};
    values = local.span();
  }
  return values[50];
}
#endif
#if IS_CASE(21)  // buffer | used after the brace of its epoch
int late_21() {
  epoch_resource memory{&blocks};
  buffer<int> values;
  int* first = nullptr;
  {
    epoch step{memory};
    values = buffer<int>{memory, 100, 1};
    first = values.data();
  }
  return *first;
}
#endif
#if IS_CASE(22)  // buffer_view | returned
buffer_view<int> returned_22(epoch_resource& memory) {
  buffer<int> values{memory, 100, 1};
  return values.view(0, 10);
}
int late_22() {
  epoch_resource memory{&blocks};
  return *returned_22(memory).data();
}
#endif
#if IS_CASE(23)  // epoch | a block of its resource, used after the brace
int late_23() {
  epoch_resource memory{&blocks};
  int* value = nullptr;
  {
    epoch step{memory};
    value = static_cast<int*>(memory.allocate(sizeof(int)));
    *value = 1;
  }
  return *value;
}
#endif
#if IS_CASE(24)  // unique_block | returned
void* returned_24() {
  unique_block block{&blocks, 100};
  return block.data();
}
int late_24() { return *static_cast<int*>(returned_24()); }
#endif
#if IS_CASE(25)  // unique_block | used after the brace
int late_25() {
  std::span<int> values;
  {
    unique_block block{&blocks, 400};
    values = block.as<int>();
  }
  return values[50];
}
#endif
#if IS_CASE(26)  // workspace::scope | returned
std::span<int> returned_26(workspace& ws) {
  workspace::scope scope{ws};
  return scope.zeros<int>(100);
}
int late_26() {
  workspace ws;
  return returned_26(ws)[50];
}
#endif
#if IS_CASE(27)  // workspace::scope | used after the brace
int late_27() {
  workspace ws;
  std::span<int> values;
  {
    workspace::scope scope{ws};
    values = scope.zeros<int>(100);
  }
  return values[50];
}
#endif
#if IS_CASE(28)  // workspace | used after the brace
int late_28() {
  std::span<int> values;
  {
    workspace ws;
    values = ws.zeros<int>(100);
  }
  return values[50];
}
#endif

#if IS_CASE(29) || IS_CASE(30)
struct TIDEMARK_COROUTINE number_source {
  struct promise_type : pmr_promise<> {
    int value = 0;
    number_source get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int given) noexcept {
      value = given;
      return {};
    }
    static void return_void() noexcept {}
    static void unhandled_exception() noexcept { std::abort(); }
  };
  std::coroutine_handle<promise_type> handle;
  int next() const {
    handle.resume();
    return handle.promise().value;
  }
};
number_source numbers(std::allocator_arg_t, frame_resource) {
  for (int i = 1;; ++i) co_yield i;
}
#endif
#if IS_CASE(29)  // pmr_promise | returned from the scope that its frame is on
[[clang::coro_wrapper]] number_source returned_29() {
  arena::scope scope{permanent};
  return numbers(std::allocator_arg, scope);
}
int late_29() { return returned_29().next(); }
#endif
#if IS_CASE(30)  // pmr_promise | resumed after the brace of its scope
int late_30() {
  number_source source;
  {
    arena::scope scope{permanent};
    source = numbers(std::allocator_arg, scope);
    (void)source.next();
  }
  return source.next();
}
#endif
#if IS_CASE(31)  // arena | used after pop
int late_31() {
  arena local{options};
  int* value = local.push<int>();
  local.pop(sizeof(int));
  return *value;
}
#endif
#if IS_CASE(32)  // arena | used after deallocate
int late_32() {
  arena local{options};
  int* value = local.push<int>();
  local.deallocate(value, sizeof(int));
  return *value;
}
#endif
#if IS_CASE(33)  // synchronized_pool | used after deallocate
int late_33() {
  synchronized_pool local;
  auto* value = static_cast<int*>(local.allocate(sizeof(int)));
  *value = 1;
  local.deallocate(value, sizeof(int));
  return *value;
}
#endif
#if IS_CASE(34)  // upstream_arena | used after the brace
int late_34() {
  int* value = nullptr;
  {
    upstream_arena local;
    value = local.push<int>();
  }
  return *value;
}
#endif
#if IS_CASE(35)  // compat::monotonic_buffer_resource | used after release
int late_35() {
  compat::monotonic_buffer_resource local;
  auto* value = static_cast<int*>(local.allocate(sizeof(int)));
  *value = 1;
  local.release();
  return *value;
}
#endif

}  // namespace

#if CASE == 0
int main(int count, char** arguments) {
  int (*const all[])() = {late_1,  late_2,  late_3,  late_4,  late_5,  late_6,  late_7,  late_8,  late_9,
                          late_10, late_11, late_12, late_13, late_14, late_15, late_16, late_17, late_18,
                          late_19, late_20, late_21, late_22, late_23, late_24, late_25, late_26, late_27,
                          late_28, late_29, late_30, late_31, late_32, late_33, late_34, late_35};
  const int number = count == 2 ? std::atoi(arguments[1]) : 0;
  set_scratch_options(options);
  if (number < 1 || number > static_cast<int>(std::size(all))) return 2;
  std::printf("%d was read, and nothing said\n", all[number - 1]());
}
#endif
