// SPDX-License-Identifier: Apache-2.0
// Strategy: Thrust's vectors on an arena, with each device system of Thrust.
#include "thrust_machine.hpp"

#include <thrust/reduce.h>
#include <thrust/sequence.h>

namespace tidemark::test {
namespace {

class vectors : public thrust_machine {};

TEST_F(vectors, lie_in_the_resource_that_they_are_given) {
  machine_arena step = make_arena();
  device_vector<int> numbers(100, &step);
  EXPECT_TRUE(step.owns(thrust::raw_pointer_cast(numbers.data())));
  EXPECT_GE(step.position(), 400u);
  thrust::sequence(policy(step), numbers.begin(), numbers.end());
  EXPECT_EQ(thrust::reduce(policy(step), numbers.begin(), numbers.end()), 4950);
}

}  // namespace
}  // namespace tidemark::test
