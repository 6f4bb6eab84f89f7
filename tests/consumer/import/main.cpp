// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

import tidemark;
import tidemark.cuda;
#ifdef WITH_PLANNER
import tidemark.planner;
#endif

int main() {
#ifdef WITH_PLANNER
  const std::vector<tidemark::lifetime> blocks{{.lower = 0, .upper = 2, .size = 10},
                                               {.lower = 1, .upper = 3, .size = 20}};
  if (tidemark::planner::find_plan(blocks, {.alignment = 1}).height != 30) return 1;
#endif
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  std::pmr::vector<int> v({1, 2, 3}, &step);
  const std::span<double> x = scope.push_array<double>(4);
  tidemark::gpu::driver& driver = tidemark::gpu::system_driver();
  int devices = 0;
  std::printf("C++%ld: %d %g %d, %s\n", __cplusplus / 100 % 100, v[2], x[3], step.owns(v.data()),
              driver.error_name(driver.device_count(devices)));
}
