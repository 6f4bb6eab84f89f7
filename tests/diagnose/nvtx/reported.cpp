// SPDX-License-Identifier: Apache-2.0
// Uses an arena of a device and its scopes. The tool prints the reports that reach it:
// injected_tool.cpp.
#include <cstdint>
#include <cstdio>

#include <tidemark/arena/arena.hpp>

namespace {

using namespace tidemark;

constexpr std::uintptr_t device_address = std::uintptr_t{1} << 62;  // it is never touched

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

int main() { use_device_memory(); }
