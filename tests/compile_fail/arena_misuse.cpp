// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <string>
#include <utility>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

struct with_virtual_functions {
  virtual void run() {}
};

void misuse(arena& step, borrowed_device_arena& device, arena::scope& scope, process_arena& memory) {
  (void)step, (void)device, (void)scope, (void)memory;
#if CASE == 1  // message: deleted
  arena copy{step};
#elif CASE == 2   // message: deleted
  arena moved{std::move(step)};
#elif CASE == 3   // message: (deleted|no viable|no matching|cannot be assigned)
  arena::scope copy = scope;
#elif CASE == 4   // message: (constraints not satisfied|no matching|unsatisfied)
  (void)device.push<int>();  // would zero memory that the host must not touch
#elif CASE == 5   // message: (constraints not satisfied|no matching|unsatisfied)
  (void)device.push_bytes(64);
#elif CASE == 6   // message: (constraints not satisfied|no matching|unsatisfied)
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
  scratch();  // a scope that ends at once
#elif CASE == 12  // message: (nodiscard|discard|unused|ignoring)
  step.mark();
#elif CASE == \
    13  // message: (constraints not satisfied|no matching|unsatisfied|could not convert|cannot convert)
  (void)scratch(3);
#elif CASE == 15  // message: (nodiscard|discard|unused|ignoring)
  scope.push<int>(3);
#elif CASE == 16  // message: deleted
  memory.make<std::string>();  // its destructor would run while others read it
#elif CASE == 17  // message: virtual functions points into its own program
  memory.publish(with_virtual_functions{});
#elif CASE == 14  // message: (explicit|no match|could not convert|no viable)
  step = 64 * MiB;
#endif
}
