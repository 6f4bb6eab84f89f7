// SPDX-License-Identifier: Apache-2.0
// Mistakes in the use of the library, one per case: `fault<n>`, with the text of its row in the table of
// docs/finding_faults.md. The program makes one mistake, by its number, under the finder that its second
// argument names. It prints the message of an exception, as a program without a handler would. With number 0
// it counts the scopes that are trapped, of 10000 in each of three arenas.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

namespace {

bool is_tracked = false;
int volatile sink = 0;

// Reads memory that may be gone; not inlined, so that no compiler removes the read.
[[gnu::noinline]] void read(int const* value) { sink = *value; }

// Passes memory to a resource of which the compiler knows nothing.
template <class T>
T* opaque(T* pointer) {
  T* volatile through = pointer;
  return through;
}

// A pool, below a `tracking_resource` if that is the finder.
class blocks {
 public:
  blocks() {
    if (is_tracked) tracked_.emplace(&pool_, "blocks");
  }
  std::pmr::memory_resource* operator->() {
    return opaque<std::pmr::memory_resource>(tracked_ ? static_cast<std::pmr::memory_resource*>(&*tracked_)
                                                      : &pool_);
  }

 private:
  pool pool_{{.upstream = std::pmr::new_delete_resource(), .name = "blocks"}};
  std::optional<tracking_resource> tracked_;
};

template <int N>
void fault();

#define FAULT(number, text) \
  template <>               \
  void fault<number>()

FAULT(1, "a pointer is used after its scope's end") {
  arena step{{.name = "step"}};
  int* late = nullptr;
  {
    arena::scope scope{step};
    late = scope.push<int>(1);
  }
  read(late);
}

FAULT(2, "a pointer is used after a rewind to a mark") {
  arena step{{.name = "step"}};
  const arena_mark mark = step.mark();
  int* const late = step.push<int>(1);
  step.rewind(mark);
  read(late);
}

FAULT(3, "an index is behind the end of the newest array") {
  arena step{{.name = "step"}};
  const std::span<int> values = step.push_array<int>(100);
  read(opaque(values.data()) + values.size());
}

FAULT(4, "a container outlives the scope of its memory") {
  arena step{{.name = "step"}};
  std::pmr::vector<int> values{&step};
  arena::scope scope{step};
  values.resize(100);
  scope.end();
}

FAULT(5, "a container outlives its arena") {
  std::optional<std::pmr::vector<int>> values;
  {
    arena step{{.name = "step"}};
    values.emplace(100, opaque(&step));
  }
  read(values->data());
}

FAULT(6, "a deallocation has a wrong size") {
  blocks memory;
  void* const block = memory->allocate(64);
  memory->deallocate(block, 640);
  memory->deallocate(block, 64);
}

FAULT(7, "a block is deallocated twice") {
  blocks memory;
  void* const block = memory->allocate(64);
  memory->deallocate(block, 64);
  memory->deallocate(block, 64);
}

FAULT(8, "a block is deallocated to a resource that did not allocate it") {
  alignas(64) static std::byte foreign[64];
  blocks memory;
  memory->deallocate(foreign, 64);
}

FAULT(9, "a block is never deallocated") {
  blocks memory;
  sink = static_cast<int*>(memory->allocate(64)) != nullptr;
}

FAULT(10, "an outer scope allocates while an inner one is open") {
  arena step{{.name = "step"}};
  arena::scope outer{step};
  const arena::scope inner{step};
  read(outer.push<int>(1));
}

FAULT(11, "an outer scope ends before an inner one") {
  arena step{{.name = "step"}};
  std::optional<arena::scope> outer{std::in_place, step};
  const arena::scope inner{step};
  outer.reset();
}

FAULT(12, "a scope is used after its end") {
  arena step{{.name = "step"}};
  arena::scope scope{step};
  scope.end();
  read(scope.push<int>(1));
}

FAULT(13, "an arena is destroyed under an open scope") {
  std::optional<arena> step{std::in_place, arena_options{.name = "step"}};
  const arena::scope scope{*step};
  step.reset();
}

FAULT(14, "a second thread uses an arena") {
  arena step{{.name = "step"}};
  read(step.push<int>(1));
  std::thread{[&] { read(step.push<int>(1)); }}.join();
}

FAULT(15, "a view of a `checked_workspace` is used after its scope's end") {
  checked_workspace ws;
  std::optional<checked_workspace::scope<>> scope{std::in_place, ws};
  const auto values = scope->ones<double>(10);
  scope.reset();
  sink = values[0] == 1;
}

FAULT(16, "a buffer is used after its epoch") {
  pool upstream;
  epoch_resource memory{{.upstream = &upstream, .name = "epochs"}};
  buffer<int> values;
  {
    epoch batch{memory, "batch"};
    values = buffer<int>{memory, 100, 1};
  }
  sink = values[0];
}

FAULT(17, "a block is deallocated after its epoch") {
  pool upstream;
  epoch_resource memory{{.upstream = &upstream, .name = "epochs"}};
  epoch batch{memory, "batch"};
  void* const block = memory.allocate(64);
  batch.end();
  memory.deallocate(block, 64);
}

FAULT(18, "a container forgets its arena") {
  const std::pmr::vector<float> gradient(1000);
  sink = gradient[0] == 0;
}

FAULT(19, "the memory runs out") {
  arena step{{.reserve = 1 * MiB, .growable = false, .name = "step"}};
  sink = step.allocate(2 * MiB) != nullptr;
}

FAULT(20, "a capture allocates without a graph arena") {
  pool upstream;
  capture_switch memory{{.without_arena = frozen_policy::refuse, .name = "memory", .upstream = &upstream}};
  memory.freeze();
  struct unfreezing {
    capture_switch* frozen;
    ~unfreezing() { (void)frozen->unfreeze(); }
  } const at_end{&memory};
  sink = memory.allocate(64) != nullptr;
}

using fault_function = void (*)();
template <int... Numbers>
void make_fault(int number, std::integer_sequence<int, Numbers...>) {
  constexpr fault_function all[] = {fault<Numbers + 1>...};
  all[number]();
}
constexpr int fault_count = 20;

// Counts trapped scopes. The variable changes after the first arena; the last arena has its own rate, which the variable replaces.
int count_trapped_scopes() {
  set_warning_handler([](warning const& seen) { std::printf("%s: %s\n", seen.resource, seen.message); });
  for (const std::uint32_t one_in : {0U, 0U, 0xffff'ffffU}) {
    arena step{{.trap = {.one_in = one_in}}};
    for (int i = 0; i < 2'000; ++i) {
      arena::scope scope{step};
      read(scope.push<int>(1));
    }
    std::printf("%llu\n", static_cast<unsigned long long>(step.stats().trapped_scopes));
    setenv("TIDEMARK_TRAP", "5", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  }
  return 0;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const int number = argument_count == 3 ? std::atoi(arguments[1]) : 0;
  if (argument_count == 2 && std::string_view{arguments[1]} == "0") return count_trapped_scopes();
  if (number < 1 || number > fault_count) return 2;
  const std::string_view finder = arguments[2];
  is_tracked = finder == "tracking_resource";
  try {
    arena step;
    std::optional<expect_resource> expected;
    if (finder == "expect_resource") expected.emplace(&step, "step");
    make_fault(number - 1, std::make_integer_sequence<int, fault_count>{});
  } catch (std::exception const& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    std::_Exit(1);
  }
}
