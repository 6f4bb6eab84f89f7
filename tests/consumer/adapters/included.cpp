// SPDX-License-Identifier: Apache-2.0
#include <thrust/reduce.h>
#include <tidemark/thrust.hpp>
#include <tidemark/tidemark.hpp>

int sum(tidemark::device_vector<int> const& numbers, tidemark::arena& temporaries) {
  return thrust::reduce(tidemark::par(temporaries), numbers.begin(), numbers.end());
}
