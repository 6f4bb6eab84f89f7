// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>
import tidemark;

int main() {
  tidemark::arena permanent{{.name = "permanent"}}, step{{.name = "step"}};
  std::span<float> weights = permanent.push_array<float>(1000);  // zeroed, and here to stay
  for (int i = 1; i <= 3; ++i) {
    tidemark::arena::scope batch{step};  // all below vanishes at the brace
    std::span<float> gradient = batch.push_array<float>(1000);
    std::pmr::vector<std::size_t> samples({3, 141, 59}, batch.resource());  // std::pmr containers too
    for (std::size_t sample : samples) gradient[sample] += 0.5f;
    for (std::size_t k = 0; k < weights.size(); ++k) weights[k] -= gradient[k];
    std::printf("step %d: %zu bytes of temporaries, weight 141 is %.1f\n", i, step.position(), weights[141]);
  }
  tidemark::arena_stats memory = step.stats();
  std::printf("after: %zu bytes in use, %zu at the peak\n", memory.used_bytes, memory.peak_bytes);
}
