// SPDX-License-Identifier: Apache-2.0
// What pkg-config, the Debian package and Conan are tried with: a program in one file.
#include <cstdio>

#include <tidemark/arena.hpp>
#include <tidemark/cuda/driver/driver.hpp>

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  (void)scope.push_array<double>(100);
  tidemark::gpu::driver& driver = tidemark::gpu::system_driver();
  int devices = 0;
  std::printf("%zu bytes, %s\n", step.position(), driver.error_name(driver.device_count(devices)));
}
