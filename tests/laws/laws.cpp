// SPDX-License-Identifier: Apache-2.0
// Strategy: the six laws of docs/start/six_laws.md in a program without GoogleTest. check.py compiles it with
// two compilers at every level of optimization, because a compiler may omit a check before undefined
// behaviour. A late access runs in a child process, because the access must end the process.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/buffer.hpp>
#include <tidemark/epoch/buffer_group.hpp>
#include <tidemark/epoch/buffer_view.hpp>
#include <tidemark/epoch/epoch.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace {

using namespace tidemark;

int failures = 0;

void expect(bool holds, char const* fact) {
  if (holds) return;
  std::printf("does not hold: %s\n", fact);
  ++failures;
}

// ---- late accesses ----------------------------------------------------------------------------------------

int* reports;  // in memory that children share

void count_and_return(violation const& found) {
  if (found.kind == violation_kind::use_after_epoch) ++*reports;
}

/// Runs `access` in a child. @return the signal that ended the child; 0 if `access` returned.
template <class Access>
int signal_of(Access const& access) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    access();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

volatile float sink;

/// Shows that no access through the handle reaches a block. @param index of the elements to be accessed.
template <class Handle>
void expect_dead(Handle const& handle, char const* which, std::size_t index = 0) {
  const auto expect_ends = [&](char const* access, bool by_violation, auto const& body) {
    *reports = 0;
    const int signal = signal_of(body);
    expect(signal != 0, (std::string{access} + " ends the program: " + which).c_str());
    if (!by_violation) return;
    expect(signal == SIGABRT, (std::string{access} + " aborts: " + which).c_str());
    expect(*reports == 1, (std::string{access} + " is reported: " + which).c_str());
  };
  expect(handle.data() == nullptr && handle.begin() == handle.end(), which);
  expect(handle.size() == 0 && handle.span().empty() && handle.empty() && !handle.is_live(), which);
  for (float& each : handle) each = 13, expect(false, which);
  for (float& each : handle.span()) each = 13, expect(false, which);
  expect_ends("handle[i]", true, [&] { sink = handle[index]; });
  expect_ends("handle[i] = 1", true, [&] { handle[index] = 1; });
  expect_ends("*data()", false, [&] { sink = *handle.data(); });
  expect_ends("*data() = 1", false, [&] { *handle.data() = 1; });
  expect_ends("data()[i]", false, [&] { sink = handle.data()[index]; });
  expect_ends("*begin()", false, [&] { sink = *handle.begin(); });
  expect_ends("*(end() - 1)", false, [&] { sink = *(handle.end() - 1); });
  expect_ends("span().data()[i]", false, [&] { sink = handle.span().data()[index]; });
}

constexpr std::size_t length = 100;

void expect_that_others_are_untouched(buffer<float> const& other) {
  for (const float x : other.span())
    if (x != 42) return expect(false, "the block at the address of a dead one keeps its elements");
}

void check_late_buffers() {
  set_violation_handler(count_and_return);
  pool blocks;
  epoch_resource memory{&blocks};
  buffer<float> late, grouped;
  buffer_view<float> view, part, of_grouped;
  {
    epoch phase{memory, "phase"};
    late = buffer<float>{memory, length, 1.0F};
    view = late.view();
    part = view.view(50, 50);
  }
  const buffer<float> other{memory, length, 42.0F};
  expect(other.data() == late.storage().address, "not a test otherwise");
  expect_dead(late, "a buffer whose epoch ended");
  expect_dead(late, "a buffer whose epoch ended", length - 1);
  expect_dead(view, "a view whose epoch ended", 7);
  expect_dead(part, "a view of a part whose epoch ended");
  expect_dead(late.view(), "a view of a dead buffer");
  expect_dead(view.view(0, 0), "a view of a dead view");
  expect(late.copy().size() == 0, "a copy of a dead buffer is empty");
  float room[1] = {3};
  late.copy_to(room);
  expect(room[0] == 3, "a dead buffer copies nothing");

  buffer_group tape{memory, "tape"};
  {
    epoch phase{memory, "phase"};
    grouped = buffer<float>{memory, length, 1.0F};
    tape.add(grouped);
    of_grouped = grouped.view();
  }
  expect(grouped[1] == 1 && of_grouped[2] == 1, "a buffer lives on in its group");
  (void)tape.close();
  const buffer<float> another{memory, length, 42.0F};
  expect_dead(grouped, "a buffer whose group was closed");
  expect_dead(of_grouped, "a view whose group was closed");

  {
    epoch phase{memory, "phase"};
    buffer<float> freed{memory, length, 1.0F};
    const buffer_view<float> of_freed = freed.view();
    (void)freed.release();
    const buffer<float> third{memory, length, 42.0F};
    expect_dead(freed, "a released buffer");
    expect_dead(of_freed, "a view of a released buffer");
    buffer<float> moved{memory, length, 1.0F};
    const buffer<float> to = std::move(moved);
    expect_dead(moved, "a moved-from buffer", 3);  // NOLINT(bugprone-use-after-move)
    expect_that_others_are_untouched(third);
  }
  expect_dead(buffer<float>{}, "an empty buffer");
  expect_dead(buffer<float>{memory, 0}, "a buffer of no elements");
  expect_dead(buffer_view<float>{}, "an empty view");
  expect_that_others_are_untouched(other);
  expect_that_others_are_untouched(another);
  set_violation_handler(nullptr);
}

// ---- the laws ---------------------------------------------------------------------------------------------

void check_arena() {
  arena step;
  float* const first = step.push_array<float>(10).data();
  const std::size_t before = step.position();
  float const* inner = nullptr;
  for (int i = 0; i < 3; ++i) {
    try {
      arena::scope scope{step};
      const std::span<float> some = scope.push_array<float>(1000);
      for (float& each : some) expect(std::exchange(each, 5.0F) == 0, "arena: pushed memory is zero");
      expect(inner == nullptr || inner == some.data(), "arena: an address comes again after a rewind");
      inner = some.data();
      if (i == 1) throw i;
    } catch (int) {
    }
    expect(step.position() == before, "arena: the cursor is back at the end of a scope");
  }
  expect(first[9] == 0, "arena: what is outside a scope stays");
}

void check_pool() {
  statistics_resource below{std::pmr::new_delete_resource()};
  pool blocks{&below};
  for (std::size_t bytes : {0UL, 1UL, 90UL, 4096UL, 100'000UL}) {
    void* const freed = blocks.allocate(bytes);
    std::memset(freed, 1, bytes);
    blocks.deallocate(freed, bytes);
    const auto calls = below.stats().allocations;
    void* const next = blocks.allocate(bytes);
    expect(next == freed && below.stats().allocations == calls,
           "pool: a freed block serves the next request");
    blocks.deallocate(next, bytes);
  }
  void* const least = blocks.allocate(0);
  expect(__builtin_object_size(least, 0) != 0,
         "pool: a block of 0 bytes is as good as one of the smallest class");
  blocks.deallocate(least, 0);
}

void check_epoch() {
  pool blocks;
  epoch_resource memory{&blocks};
  epoch phase{memory, "phase"};
  const buffer<float> hidden{memory, length}, loss{memory, 1, 0.5F};
  phase.keep(loss, static_cast<float const*>(nullptr));
  phase.end();
  expect(hidden.data() == nullptr && loss[0] == 0.5F, "epoch: its end frees all that was not kept");
}

void check_graph() {
  pool blocks;
  graph_arena graph{4096, &blocks};
  std::vector<void*> given;
  for (int i = 0; i < 12; ++i) {
    void* const block = graph.allocate(256);
    for (void* const before : given) expect(before != block, "graph: no address is allocated twice");
    given.push_back(block);
    graph.deallocate(block, 256);
  }
  void* const least = graph.allocate(0);
  expect(__builtin_object_size(least, 0) != 0, "graph: a block of 0 bytes is as good as one of 1 byte");
  graph.deallocate(least, 0);
}

template <class Use>
void expect_stale(char const* which, Use const& use) {
  try {
    use();
  } catch (stale_view const&) {
    return;
  }
  expect(false, which);
}

void check_workspace() {
  statistics_resource below{std::pmr::new_delete_resource()};
  {
    basic_workspace<1> work{&below};
    basic_workspace<1>::view<float> late;
    basic_workspace<1>::view<float, 2> late_table;
    basic_workspace<1>::bits_view<> late_bits;
    for (int pass = 0; pass < 3; ++pass) {
      basic_workspace<1>::scope<> scope{work};
      late = scope.fill(42.0F, length);
      late_table = scope.fill(42.0F, 10, 10);
      late_bits = scope.trues(length);
      if (pass == 0) continue;
      expect(below.stats().allocations == 3, "workspace: the second pass allocates nothing");
    }
    basic_workspace<1>::scope<> scope{work};
    const auto other = scope.fill(42.0F, length);
    const auto other_table = scope.fill(42.0F, 10, 10);
    const auto other_bits = scope.trues(length);
    expect_stale("a late element", [&] { sink = late[3]; });
    expect_stale("a late write", [&] { late[3] = 1; });
    expect_stale("late data()", [&] { sink = *late.data(); });
    expect_stale("late begin()", [&] { sink = *late.begin(); });
    expect_stale("a late loop", [&] {
      for (float& x : late) x = 1;
    });
    expect_stale("late elements()", [&] { sink = late.elements()[0]; });
    expect_stale("a late std::span", [&] { sink = std::span<float>{late}[0]; });
    expect_stale("a late element of a table", [&] { sink = late_table(1, 2); });
    expect_stale("a late element of another shape", [&] { sink = late.reshape(10, 10)(0, 1); });
    expect_stale("a late bit", [&] { sink = static_cast<float>(late_bits[70]); });
    expect_stale("a late write of a bit", [&] { late_bits[70] = false; });
    expect_stale("a late count", [&] { sink = static_cast<float>(late_bits.count()); });
    for (const float x : other) expect(x == 42, "a late view writes no other's element");
    expect(other_table(1, 2) == 42 && other_bits.all(), "a late view writes no other's bit");
  }
}

void check_plan() {
  planned_arena planned{planned_arena_options{}};  // the default constructor has another symbol for g++
  for (int i = 0; i < 4; ++i) {
    const planned_arena::step repeated{planned};
    std::pmr::vector<char> x(4096, 'x', &planned);
    {
      const std::pmr::vector<char> early(4096, 'e', &planned);
    }
    const std::pmr::vector<char> late(4096, 'l', &planned);
    for (const char each : x) expect(each == 'x', "plan: two live blocks never share a byte");
    for (const char each : late) expect(each == 'l', "plan: two live blocks never share a byte");
  }
  expect(planned.stats().height_bytes == 2 * 4096, "plan: dead blocks share bytes");
}

}  // namespace

int main() {
  void* const shared =
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::perror("mmap"), 2;
  reports = static_cast<int*>(shared);
  check_arena();
  check_pool();
  check_epoch();
  check_late_buffers();
  check_graph();
  check_workspace();
  check_plan();
  return failures == 0 ? 0 : 1;
}
