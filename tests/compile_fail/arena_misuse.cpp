// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <string>
#include <utility>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

struct with_virtual_functions {
  virtual void run() {}
};

void misuse(arena& step, borrowed_device_arena& device, arena::scope& scope, process_arena& memory,
            local_arena& local) {
  (void)step, (void)device, (void)scope, (void)memory, (void)local;
#if CASE == 1  // message: deleted
  arena copy{step};
#elif CASE == 2   // message: deleted
  arena moved{std::move(step)};
#elif CASE == 3   // message: (deleted|no viable|no matching|cannot be assigned)
  arena::scope copy = scope;
#elif CASE == 4   // message: write push<T>\(uninitialized\)
  (void)device.push<int>();  // would zero memory that the host must not touch
#elif CASE == 5   // message: write push_bytes\(bytes, uninitialized\)
  (void)device.push_bytes(64);
#elif CASE == 6   // message: write push<T>\(uninitialized\)
  device.make<std::string>();
#elif CASE == 7   // message: (constraints not satisfied|no matching|unsatisfied)
  (void)step.push_array<std::string>(3, uninitialized);  // a string has no uninitialised state
#elif CASE == 8   // message: (must come from an address_space|does not satisfy|constraints)
  basic_arena<int> nonsense;
#elif CASE == 9   // message: (no matching|cannot bind|no viable)
  arena::scope dangling{arena{}};  // the arena would be gone at the semicolon
#elif CASE == 10  // message: (nodiscard|discard|unused|ignoring)
  step.allocate(64);
#elif CASE == 11  // message: (nodiscard|discard|unused|ignoring)
  scratch(no_conflicts);  // a scope that ends at once
#elif CASE == 12  // message: (nodiscard|discard|unused|ignoring)
  step.mark();
#elif CASE == 13  // message: (constraints not satisfied|no matching|unsatisfied|not convert)
  (void)scratch(3);
#elif CASE == 15  // message: (nodiscard|discard|unused|ignoring)
  scope.push<int>(3);
#elif CASE == 16  // message: deleted
  memory.make<std::string>();  // its destructor would run while others read it
#elif CASE == 17  // message: virtual functions points into its own program
  memory.publish(with_virtual_functions{});
#elif CASE == 18  // message: write make<T>\(\.\.\.\), or push<T>\(no_destructor, \.\.\.\)
  (void)step.push<std::string>("its destructor would not run");
#elif CASE == 19  // message: write std::pmr::vector<T>, or \(n, no_destructor\)
  (void)scope.push_array<std::string>(3);
#elif CASE == 20  // message: T has no constructor for these arguments
  step.make<std::string>(&step, &scope, 3);
#elif CASE == 21  // message: write make<T>\(\.\.\.\), or push<T>\(no_destructor, \.\.\.\)
  (void)local.push<std::string>();
#elif CASE == 22  // message: write arena a\{\{\.reserve = 64 \* MiB\}\}
  arena sized{4096};
#elif CASE == 23  // message: write arena a\{\{\.reserve = 64 \* MiB\}\}, or upstream_arena a\{&upstream\}
  arena on_upstream{std::pmr::new_delete_resource()};
#elif CASE == 24  // message: (designated initializer|designated-initializer|designator|no matching)
  arena named{.name = "x"};
#elif CASE == 25  // message: write shared_arena team\{\{\.reserve = 64 \* MiB\}, \{\.threads = 4\}\}
  shared_arena team{4};
#elif CASE == 26  // message: write shared_arena team
  shared_arena team{std::pmr::new_delete_resource()};
#elif CASE == 27  // message: write process_arena a\{\{\.reserve = 64 \* MiB\}\}
  process_arena sized{4096};
#elif CASE == 28  // message: write pool p\{\{\.max_cached_bytes = 64 \* MiB\}\}
  pool sized{4096};
#elif CASE == 29  // message: write synchronized_pool p\{\{\.max_cached_bytes = 64 \* MiB\}\}
  synchronized_pool sized{4096};
#elif CASE == 30  // message: write workspace ws\{\{\.max_held_bytes = 64 \* MiB\}\}
  workspace sized{4096};
#elif CASE == 31  // message: write epoch_resource memory\{&upstream\}
  epoch_resource sized{4096};
#elif CASE == 32  // message: write reuse_cache c\{\{\.max_cached_bytes = 64 \* MiB\}\}
  reuse_cache sized{4096};
#elif CASE == 33  // message: write limit_resource budget\{&upstream, 64 \* MiB\}
  limit_resource budget{4096, std::pmr::new_delete_resource()};
#elif CASE == 35  // message: scratch\(no_conflicts\)
  arena::scope temporary = scratch();
#elif CASE == 34  // message: write arena a\{\{\.reserve
  borrowed_arena sized{4096};
#elif CASE == 14  // message: (explicit|no match|could not convert|no viable)
  step = 64 * MiB;
#endif
}
