// SPDX-License-Identifier: Apache-2.0
// Strategy: an importer of the adapters names each of them, beside Thrust's own headers, which are included
// first.
#include <gtest/gtest.h>
#include <thrust/device_vector.h>
#include <thrust/mr/new.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <memory_resource>

import tidemark;
import tidemark.thrust;

namespace {

// A.16
TEST(thrust_module, an_importer_has_vectors_and_policies) {
  tidemark::arena step;
  tidemark::device_vector<int> numbers({3, 1, 2}, &step);
  thrust::sort(tidemark::par(step), numbers.begin(), numbers.end());
  EXPECT_EQ(thrust::reduce(tidemark::par_nosync(step), numbers.begin(), numbers.end()), 6);
  EXPECT_EQ(numbers[2], 3);
  const tidemark::host_vector<int> on_host(numbers.begin(), numbers.end(), &step);
  const tidemark::universal_vector<int> anywhere(on_host.begin(), on_host.end(), &step);
  EXPECT_TRUE(step.owns(on_host.data()));
  EXPECT_EQ(anywhere[0], 1);
  EXPECT_TRUE(numbers.get_allocator() == tidemark::thrust_allocator<int>{&step});
}

TEST(thrust_module, importer_can_use_handles_and_foreign_resources) {
  tidemark::arena step;
  tidemark::thrust_resource<tidemark::arena, void*> handle{&step};
  static_assert(tidemark::raw_memory_source<thrust::mr::new_delete_resource>);
  tidemark::foreign_resource<decltype(handle)> back{handle};
  const std::pmr::vector<int> numbers(100, 1, &back);
  EXPECT_TRUE(step.owns(numbers.data()));
  tidemark::cuda_resource<tidemark::arena> resource{step};
  void* const block = resource.allocate_sync(10);
  EXPECT_TRUE(step.owns(block));
  resource.deallocate_sync(block, 10);
}

}  // namespace
