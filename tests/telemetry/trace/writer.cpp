// SPDX-License-Identifier: Apache-2.0
// Writes a trace with everything that a trace can contain. check.py reads it like viewers and replaying
// programs.
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>

#include <tidemark/tidemark.hpp>

int main(int, char** arguments) {
  using namespace tidemark;
  trace_log log{{.csv = arguments[1], .chrome = arguments[2], .counter_interval = {}}};
  std::pmr::memory_resource* const heap = std::pmr::new_delete_resource();
  trace_resource plain{heap, log, "plain"};
  trace_resource odd{heap, log,
                     "\"quoted\" \\ / \b\f\n\r\t \x01\x1f\x7f größe 内存 🌊 "
                     // The first and last of their length, then values that are too low, too high, or cut
                     // off.
                     "\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"
                     "\xe0\x9f\xbf\xf0\x8f\xbf\xbf"
                     "\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe5\x86"};
  try {
    trace_slice run{log, "run"};
    for (int i = 0; i < 3; ++i) {
      trace_slice step{log, "step \"" + std::to_string(i) + '"'};
      trace_slice forward{log, "forward"};
      void* const block = plain.allocate(1000);
      std::thread{[&] {
        trace_slice free{log, "free"};
        plain.deallocate(block, 1000);
        odd.deallocate(odd.allocate(7), 7);
      }}.join();
    }
    (void)plain.allocate(24);  // never deallocated
    throw std::runtime_error("the end");
  } catch (std::runtime_error const&) {
    return 0;
  }
}
