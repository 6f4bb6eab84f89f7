// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

import tidemark;
import tidemark.cuda;

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  std::pmr::vector<int> v({1, 2, 3}, &step);
  const std::span<double> x = scope.push_array<double>(4);
  tidemark::gpu::driver& driver = tidemark::gpu::system_driver();
  int devices = 0;
  std::printf("C++%ld: %d %g %d, %s\n", __cplusplus / 100 % 100, v[2], x[3], step.owns(v.data()),
              driver.error_name(driver.device_count(devices)));
}
