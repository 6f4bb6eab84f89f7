// SPDX-License-Identifier: Apache-2.0
// A program in the library's own style, without its own trace. check_process.py runs it with
// TIDEMARK_TRACE.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <thread>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

namespace {

arena& static_arena() {
  static arena made{{.name = "static"}};
  return made;
}

[[gnu::noinline]] void smooth(arena& out) {
  arena::scope temporary = scratch(out);
  (void)temporary.push_array<float>(1000);
  (void)out.push_array<double>(10);
}

void run_all() {
  arena step{{.name = "step, one"}};
  for (int i = 0; i < 2; ++i) {
    arena::scope scope{step};
    smooth(step);
    (void)scope.push_string("text");
  }
  shared_arena team{{.name = "team"}};
  (void)team.allocate(40);
  std::thread{[&team] {
    (void)team.local().push<int>(3);
    workspace ws{workspace_options{.name = "pictures"}};
    workspace::scope scope{ws};
    (void)scope.acquire<double>(3);
  }}.join();
  planned_arena memory{planned_arena_options{.name = "train"}};
  for (int i = 0; i < 3; ++i) {
    planned_arena::step planned{memory, 7};
    void* const block = memory.allocate(300);
    memory.deallocate(memory.allocate(200), 200);
    memory.deallocate(block, 300);
  }
  statistics_resource seen;
  arena counted{{.name = "counted", .observer = &seen}};
  (void)counted.push_bytes(55);
  if (seen.stats().used_bytes != 55) std::puts("the program's own observer does not see the block");
  (void)static_arena().push_bytes(77);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view how = count > 1 ? arguments[1] : "";
  if (how == "handler") {
    set_warning_handler([](warning const& given) { std::printf("handled: %s\n", given.message); });
    arena inside_of_handler;
  }
  run_all();
  if (how == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      run_all();
      return 0;
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
  }
  std::puts("done");
}
