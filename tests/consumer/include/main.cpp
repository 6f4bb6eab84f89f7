// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/tidemark.hpp>
#ifdef WITH_PLANNER
#include <tidemark/planner.hpp>
#endif

namespace {

// The library writes the variable that this program reads, also if the program hides its symbols.
bool shares_the_current_workspace_with_the_library() {
  tidemark::workspace& current = tidemark::this_thread_workspace();
  return tidemark::detail::this_threads_workspace == &current;
}

// Reads the thread-local variables of the library that are reached without a call.
bool reaches_this_threads_variables() {
  tidemark::synchronized_pool blocks;
  blocks.deallocate(blocks.allocate(64), 64);
  tidemark::epoch_resource phases{&blocks};
  tidemark::epoch phase{phases, "phase"};
  (void)phases.allocate(64);
  tidemark::workspace::scope temporaries{tidemark::this_thread_workspace()};
  return temporaries.zeros<int>(3)(2) == 0 && blocks.stats().used_blocks == 1;
}

}  // namespace

int main() {
#ifdef WITH_PLANNER
  const std::vector<tidemark::lifetime> blocks{{.lower = 0, .upper = 2, .size = 10},
                                               {.lower = 1, .upper = 3, .size = 20}};
  if (tidemark::planner::find_plan(blocks, {.alignment = 1}).height != 30) return 1;
#endif
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  std::pmr::vector<std::pmr::string> v({"a string that is too long to be stored in place"}, &step);
  if (!reaches_this_threads_variables() || !shares_the_current_workspace_with_the_library()) return 1;
  try {
    tidemark::arena small{{.reserve = 4096, .growable = false, .name = "small"}};
    (void)small.allocate(4097);
  } catch (tidemark::out_of_memory const& error) {
    tidemark::gpu::driver& driver = tidemark::gpu::system_driver();
    int devices = 0;
    std::printf("%s, %s, %d, %s\n", error.report().resource, v[0].substr(0, 8).c_str(), step.owns(v.data()),
                driver.error_name(driver.device_count(devices)));
  }
}
