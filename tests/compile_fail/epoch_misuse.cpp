// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

void misuse(epoch_resource& memory, epoch& e, buffer_group& tape, buffer<float>& b) {
  (void)memory, (void)e, (void)tape, (void)b;
#if CASE == 18  // one sentence: epoch::keep takes buffers, views, pointers, and contiguous ranges
  e.keep(std::pmr::list<std::pmr::string>{});
#elif CASE == 19  // one sentence: epoch::keep takes
  e.keep(std::pmr::vector<std::pmr::string>{});
#elif CASE == 20  // one sentence: epoch::keep takes
  e.keep(std::pmr::map<int, int>{});
#elif CASE == 21  // one sentence: epoch::keep takes
  e.keep(std::vector<buffer<float> >{});
#elif CASE == 22  // one sentence: epoch::keep takes
  e.keep(b, std::optional<buffer_view<float> >{});
#elif CASE == 23  // one sentence: epoch::keep takes
  e.keep(std::unique_ptr<int>{});
#elif CASE == 24  // one sentence: with_epoch does not keep the buffers in a range
  (void)with_epoch(memory, [&] { return std::vector<buffer<float> >(2); });
#elif CASE == 25  // one sentence: with_epoch does not keep the buffers in a range
  (void)with_epoch(memory, [&] { return std::pair{1, std::make_unique<buffer<float> >()}; });
#elif CASE == 1   // message: elements must be trivially copyable
  buffer<std::string> strings{memory, 3};
#elif CASE == 2   // message: elements must be trivially copyable
  buffer<std::vector<int> > rows;
#elif CASE == 3   // one sentence: epoch::keep takes
  e.keep(3);
#elif CASE == 4   // one sentence: epoch::keep takes
  e.keep(b, std::function<void()>{});
#elif CASE == 5   // one sentence: epoch::keep takes
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
