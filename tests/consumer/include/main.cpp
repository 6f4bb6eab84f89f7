// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/tidemark.hpp>

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena_scope scope{step};
  std::pmr::vector<std::pmr::string> v({"a string that is too long to be stored in place"}, &step);
  try {
    tidemark::arena small{{.reserve = 4096, .growable = false, .name = "small"}};
    (void)small.allocate(4097);
  } catch (tidemark::out_of_memory const& error) {
    tidemark::cuda::driver& driver = tidemark::cuda::system_driver();
    int devices = 0;
    std::printf("%s, %s, %d, %s\n", error.report().resource, v[0].substr(0, 8).c_str(), step.owns(v.data()),
                driver.error_name(driver.device_count(devices)));
  }
}
