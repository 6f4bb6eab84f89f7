// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

void misuse(epoch_resource& memory, epoch& e, buffer_group& tape, buffer<float>& b) {
  (void)memory, (void)e, (void)tape, (void)b;
#if CASE == 1  // message: elements must be trivially copyable
  buffer<std::string> strings{memory, 3};
#elif CASE == 2   // message: elements must be trivially copyable
  buffer<std::vector<int> > rows;
#elif CASE == 3   // message: (constraints not satisfied|no matching|unsatisfied)
  e.keep(3);
#elif CASE == 4   // message: (constraints not satisfied|no matching|unsatisfied)
  e.keep(b, std::function<void()>{});
#elif CASE == 5   // message: (constraints not satisfied|no matching|unsatisfied)
  e.keep(std::pair<buffer<float>, int>{});
#elif CASE == 6   // message: deleted
  buffer<float> copy{b};
#elif CASE == 7   // message: (deleted|no viable)
  b = b;
#elif CASE == 8   // message: deleted
  epoch copy{e};
#elif CASE == 9   // message: deleted
  epoch moved{std::move(e)};
#elif CASE == 10  // message: deleted
  buffer_group copy{tape};
#elif CASE == 11  // message: deleted
  epoch_resource copy{memory};
#elif CASE == 12  // message: (nodiscard|discard|unused|ignoring)
  epoch{memory, "ends at the semicolon"};
#elif CASE == 13  // message: (nodiscard|discard|unused|ignoring)
  buffer_group{memory, "closed at the semicolon"};
#elif CASE == 15  // message: (nodiscard|discard|unused|ignoring)
  memory.allocate(64);
#elif CASE == 16  // message: (cannot bind|no matching|no viable|lvalue)
  tape.add(buffer<float>{memory, 3});  // would be gone before it could be registered
#elif CASE == 17  // message: (explicit|no viable|could not convert|no match|conversion)
  epoch implicit = memory;
#elif CASE == 14  // message: (private|no matching)
  buffer_view<float> made{b.storage(), nullptr, 3};
#endif
}
