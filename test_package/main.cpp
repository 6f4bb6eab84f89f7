// SPDX-License-Identifier: Apache-2.0
// A program in one file, built by the tests of pkg-config, the Debian package and Conan.
#include <cstdio>

#include <tidemark/arena.hpp>
#if __has_include(<tidemark/cuda.hpp>)  // the package has the device part
#include <tidemark/cuda/driver/driver.hpp>
#endif

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  (void)scope.push_array<double>(100);
  std::printf("%zu bytes", step.position());
#if __has_include(<tidemark/cuda.hpp>)
  tidemark::gpu::driver& driver = tidemark::gpu::system_driver();
  int devices = 0;
  std::printf(", %s", driver.error_name(driver.device_count(devices)));
#endif
  std::printf("\n");
}
