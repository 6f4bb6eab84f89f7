// SPDX-License-Identifier: Apache-2.0
#include "host_thrust_side.hpp"

#include <thrust/reduce.h>
#include <thrust/sequence.h>

#include <cstddef>

#include <tidemark/arena/arena.hpp>
#include <tidemark/thrust.hpp>

static_assert(THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CPP);

namespace tidemark::test {

int sum_on_host(int n) {
  arena step;
  device_vector<int> numbers(static_cast<std::size_t>(n), &step);
  thrust::sequence(par(step), numbers.begin(), numbers.end(), 1);
  return thrust::reduce(par(step), numbers.begin(), numbers.end());
}

}  // namespace tidemark::test
