// SPDX-License-Identifier: Apache-2.0
// Strategy: with CUDA, types decide on which stream elements are copied as a vector grows. These tests
// therefore check types, and need no device. A policy like ours that makes no choice shows whether Thrust's
// own choice is still the default stream.
#include <gtest/gtest.h>

#include <tidemark/thrust.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <type_traits>
#include <utility>

#include <thrust/detail/copy.h>

namespace tidemark::test {
namespace {

struct undecided_policy : tidemark::detail::stream_policy_base<undecided_policy> {
  using tidemark::detail::stream_policy_base<undecided_policy>::stream_policy_base;
};

// As thrust::copy finds it.
using thrust::system::detail::generic::select_system;
template <class Policy>
using chosen = decltype(select_system(std::declval<thrust::device_system_tag&>(), std::declval<Policy&>()));

TEST(copies_in_vectors, are_on_the_stream_of_the_allocator) {
  using policy = thrust_allocator<float>::system_type;
  EXPECT_TRUE((std::is_same_v<chosen<policy>, policy&>));
}

TEST(thrust_faults_with_cuda, copies_in_vectors_would_be_on_the_default_stream) {
  EXPECT_TRUE((std::is_same_v<chosen<undecided_policy>, thrust::device_system_tag&>));
}

}  // namespace
}  // namespace tidemark::test

#endif
