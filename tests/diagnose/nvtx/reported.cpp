// SPDX-License-Identifier: Apache-2.0
// Uses an arena of a device, scopes and epochs. The tool prints the reports that reach it:
// injected_tool.cpp.
#include <cstdint>
#include <cstdio>

#include <tidemark/arena/arena.hpp>
#include <tidemark/epoch/epoch.hpp>
#include <tidemark/workspace/workspace.hpp>

namespace {

using namespace tidemark;

constexpr std::uintptr_t device_address = std::uintptr_t{1} << 62;  // it is never touched

void use_ranges() {
  workspace ws{workspace_options{.name = "solver"}};
  epoch_resource memory;
  arena step{{.name = "step"}};
  const epoch training{memory, "training"};
  const arena::scope scope{step};
  const workspace::scope<> temporaries{ws};
}

void use_device_memory() {
  borrowed_device_arena device{borrowed_device_memory{{device_address, 64 * KiB}}, {.name = "device step"}};
  void* const kept = device.allocate(100);
  {
    const borrowed_device_arena::scope scope{device};
    (void)device.allocate(200);
    (void)device.allocate(300);
  }
  if (!device.expand(kept, 100, 1000)) std::printf("did not expand\n");
  device.reset();
}

}  // namespace

int main() {
  use_ranges();
  std::printf("-- device memory\n");
  use_device_memory();
  std::printf("-- device memory has been seen\n");
  use_ranges();
}
