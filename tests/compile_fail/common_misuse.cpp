// SPDX-License-Identifier: Apache-2.0
// The mistakes that users make most. Each CASE must fail to compile in this many lines, and the first error
// must match; without a case the file must compile. The headers are those of the parts: the compilers may
// print one line more for `<tidemark/tidemark.hpp>`. g++ prints three lines of headers for `std::pmr` cases.
#include <list>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/arena.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/plan.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/team.hpp>
#include <tidemark/telemetry.hpp>
#include <tidemark/workspace.hpp>

using namespace tidemark;

struct named_value {
  named_value(int number, char const* text);
};

void misuse(arena& step, arena::scope& scope, borrowed_device_arena& device, pool& blocks,
            workspace::scope<>& temporary, epoch_resource& memory, epoch& e, reuse_cache& cache, void* block,
            shared_arena::scope& team_scope, trace_log& log) {
  (void)team_scope, (void)step, (void)scope, (void)device, (void)blocks, (void)temporary, (void)memory,
      (void)e, (void)cache, (void)block, (void)log;
#if CASE == 1  // in 10 lines: write arena a\{\{\.reserve = 64 \* MiB\}\}
  arena sized{4096};
#elif CASE == 2   // in 10 lines: write make<T>\(\.\.\.\), or push<T>\(no_destructor, \.\.\.\)
  (void)step.push<std::string>();
#elif CASE == 3   // in 10 lines: T has no constructor for these arguments: write those of a constructor
  step.make<named_value>("x", 1);
#elif CASE == 4   // in 10 lines: T has no constructor for these arguments: write those of a constructor
  (void)scope.push<named_value>(1);
#elif CASE == 5   // in 10 lines: write std::pmr::vector<T>, or \(n, no_destructor\)
  (void)step.push_array<std::string>(3);
#elif CASE == 6   // in 10 lines: write scratch\(out\), or scratch\(no_conflicts\)
  arena::scope of_any = scratch();
#elif CASE == 7   // in 10 lines: epoch::keep takes buffers, views, pointers, and contiguous ranges
  e.keep(std::map<int, int>{});
#elif CASE == 8   // in 10 lines: write &resource
  std::pmr::vector<int> numbers{step};
#elif CASE == 9   // in 10 lines: an arena cannot be copied or moved: pass arena& or arena\*
  arena copy{step};
#elif CASE == 10  // in 10 lines: its elements must be trivially copyable
  auto names = temporary.acquire<std::string>(3);
#elif CASE == 11  // in 10 lines: write planned_arena a\{\{\.reserve = 64 \* MiB\}\}
  planned_arena sized{4096};
#elif CASE == 12  // in 10 lines: write push_array<T>\(n, uninitialized\)
  (void)device.push_array<int>(3);
#elif CASE == 13  // in 10 lines: write push_array<T>\(n, value\)
  (void)step.push_array<named_value>(3);
#elif CASE == 14  // in 10 lines: write &resource
  std::pmr::vector<int> numbers(10, blocks);
#elif CASE == 15  // in 10 lines: a scope cannot be copied: write std::move\(scope\), or pass arena::scope&
  arena::scope copy = scope;
#elif CASE == 16  // in 10 lines: a pool cannot be copied or moved: pass pool& or pool\*
  pool copy{blocks};
#elif CASE == 17  // in 10 lines: an extent is an integer: write acquire<double>\(rows, columns\)
  auto numbers = temporary.acquire<double>(3.5);
#elif CASE == 18  // in 10 lines: write pool p\{\{\.max_cached_bytes = 64 \* MiB\}\}
  pool sized{4096};
#elif CASE == 19  // in 10 lines: write push<T>\(uninitialized\)
  (void)device.push<int>(3);
#elif CASE == 20  // in 10 lines: write push<T>\(uninitialized\)
  device.make<std::string>("x");
#elif CASE == 21  // in 10 lines: write push_bytes\(bytes, uninitialized\)
  (void)device.push_bytes(64);
#elif CASE == 22  // in 10 lines: write std::pmr::vector<T> v\{&memory\}
  buffer<std::string> names{memory, 3};
#elif CASE == 23  // in 10 lines: write deallocate\(block, bytes, align\)
  cache.deallocate_after(block, 64, 64, nullptr);
#elif CASE == 24  // in 10 lines: write make<T>\(\.\.\.\), or push<T>\(no_destructor, \.\.\.\)
  (void)scope.push<std::string>("x");
#elif CASE == 25  // in 10 lines: epoch::keep finds no block of a container on the heap
  e.keep(std::vector<int>{});
#elif CASE == 26  // in 10 lines: epoch::keep finds no block of a container on the heap
  e.keep(std::string{"x"});
#elif CASE == 27  // in 10 lines: write scope.resource\(\)
  std::pmr::vector<int> numbers{scope};
#elif CASE == 28  // in 10 lines: write scope.resource\(\)
  std::pmr::vector<int> numbers(10, scope);
#elif CASE == 29  // in 10 lines: write &scope.arena\(\)
  std::pmr::vector<int> numbers(10, team_scope);
#elif CASE == 30  // in 10 lines: a count is an integer: write push_array<T>\(n, value\)
  (void)step.push_array(1.0, 3);
#elif CASE == 31  // in 10 lines: a count is an integer: write push_array<T>\(n, value\)
  (void)scope.push_array<float>(2.0, 3.0F);
#elif CASE == 32  // in 10 lines: write std::pmr::vector<T>, or \(n, no_destructor\)
  (void)step.push_array(4, std::string("x"));
#elif CASE == 33  // in 10 lines: T takes a resource: write make<T>\(..., scope.resource\(\) or &arena\)
  step.make<std::pmr::vector<int> >(10);
#elif CASE == 34  // in 10 lines: T takes a resource: write make<T>\(..., scope.resource\(\) or &arena\)
  scope.make<std::pmr::string>();
#elif CASE == 35  // in 10 lines: T takes a resource: write push<T>\(no_destructor, ..., scope.resource\(\) or &arena\)
  (void)step.push<std::pmr::vector<int> >(no_destructor, 10);
#elif CASE == 36  // in 10 lines: a buffer takes a resource first: write buffer<T> b\{memory, n\}
  buffer<float> swapped{100, memory};
#elif CASE == 37  // in 10 lines: the upstream is first: write trace_resource\{&upstream, log, name\}
  trace_resource traced{log, &memory, "x"};
#elif CASE == 38  // in 10 lines: the upstream is first: write trace_resource\{&upstream, log, name\}
  trace_resource traced{log, &memory};
#elif CASE == 39  // in 10 lines: push_copy takes a contiguous range
  auto const copy = scope.push_copy(std::list{1, 2, 3});
#endif
}
