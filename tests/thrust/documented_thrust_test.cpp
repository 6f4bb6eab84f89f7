// SPDX-License-Identifier: Apache-2.0
// Strategy: the code of docs/thrust.md stands here, word for word; a test in tests/tools checks this. Here it
// is compiled for each of Thrust's systems, as users do: outside of our namespace. The results that it states
// are checked.
#include <gtest/gtest.h>
#include <thrust/equal.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/graph/capture.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/rehearse.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/thrust.hpp>

#include "thrust_machine.hpp"

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <tidemark/cuda/driver/capture.hpp>
#endif

namespace {

class documented : public tidemark::test::thrust_machine {
 protected:
  static std::vector<float> numbers_in(tidemark::device_vector<float> const& x) {
    std::vector<float> numbers(x.size());
    thrust::copy(x.begin(), x.end(), numbers.begin());
    return numbers;
  }
};

template <class Arena>
float median(Arena& step, std::vector<float> const& numbers) {
  typename Arena::scope scope{step};  // what follows is gone at the brace
  tidemark::device_vector<float> sorted(numbers.begin(), numbers.end(), &step);
  thrust::sort(tidemark::par(step), sorted.begin(), sorted.end());  // its temporaries lie in `step`, too
  return sorted[sorted.size() / 2];
}

TEST_F(documented, a_function_allocates_nothing_from_the_system_after_the_first_call) {
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  tidemark::gpu::stream stream;
  tidemark::device_arena step{{.reserve = 1 * tidemark::GiB, .name = "step"}, stream};
#else
  tidemark::arena step{{.reserve = 1 * tidemark::GiB, .name = "step"}};
#endif
  EXPECT_EQ(median(step, {3, 1, 4, 1, 5, 9, 2, 6, 5}), 4);
  EXPECT_GT(step.stats().peak_bytes, 0u);
  const auto calls = step.stats().system_calls;
  EXPECT_EQ(median(step, {2, 7, 1, 8, 2, 8, 1, 8, 2}), 2);
  EXPECT_EQ(step.stats().system_calls, calls);
  EXPECT_EQ(step.position(), 0u);
}

TEST_F(documented, assigned_elements_are_copied_out_of_the_step) {
  tidemark::test::machine_arena step = make_arena();
  tidemark::test::machine_pool blocks = make_pool();
  tidemark::device_vector<float> kept(&blocks);
  {
    decltype(step)::scope scope{step};
    tidemark::device_vector<float> x(1000, 1.0F, &step);
    tidemark::device_vector<float> y{x};  // a copy lies where `x` lies
    kept = y;                             // what is assigned is copied into `blocks`
    // kept = std::move(y);               // but this would take the memory, which goes at the brace
  }
  EXPECT_EQ(kept.get_allocator().resource(), &blocks);
  EXPECT_EQ(numbers_in(kept), std::vector<float>(1000, 1.0F));
  EXPECT_EQ(step.position(), 0u);
}

TEST_F(documented, a_step_is_rehearsed_and_captured) {
  tidemark::test::machine_pool blocks = make_pool();
  std::pmr::memory_resource& device = memory();
  tidemark::gpu::stream_handle stream = this->stream();
  tidemark::device_vector<float> in({3, 1, 2}, &blocks), out(3, &blocks);

  const auto body = [stream](std::pmr::memory_resource& memory, tidemark::device_vector<float>& in,
                             tidemark::device_vector<float>& out) {
    tidemark::device_vector<float> sorted(in, {&memory, stream});  // the type does not tell the stream
    auto const policy = tidemark::par(memory, stream);
    thrust::sort(policy, sorted.begin(), sorted.end());
    thrust::inclusive_scan(policy, sorted.begin(), sorted.end(), out.begin());
  };
  auto layout = tidemark::rehearse([&](auto& memory) { body(memory, in, out); }, &blocks);
  auto arena = std::make_unique<tidemark::graph_arena>(layout, &device);
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  auto graph = tidemark::capture(stream, std::move(arena), std::move(in), std::move(out), body);
  graph.launch();
  wait();
#else
  tidemark::host_backend host;  // runs the body at once
  auto graph = tidemark::capture(host, std::move(arena), std::move(in), std::move(out), body);
#endif
  EXPECT_EQ(numbers_in(graph.outputs()), (std::vector<float>{1, 3, 6}));
}

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

TEST_F(documented, host_and_universal_vectors_hold_data_for_the_device) {
  tidemark::device_arena step = make_arena();
  tidemark::pinned_arena staging{{.reserve = 64 * tidemark::MiB}};
  tidemark::managed_arena shared{{.reserve = 64 * tidemark::MiB}};
  tidemark::host_vector<float> on_host(1000, 2.0F, &staging);
  tidemark::universal_vector<float> on_both(1000, 3.0F, &shared);
  tidemark::device_vector<float> on_device(on_host.begin(), on_host.end(), &step);
  EXPECT_EQ(numbers_in(on_device), std::vector<float>(1000, 2.0F));
  EXPECT_EQ(on_both[999], 3.0F);
}

TEST_F(documented, asynchronous_algorithms_run_in_order) {
  tidemark::gpu::stream stream;
  tidemark::device_arena step{{.reserve = 1 * tidemark::GiB}, stream};
  tidemark::device_vector<float> x(1000, 1.0F, &step);
  thrust::sort(tidemark::par_nosync(step), x.begin(), x.end());
  thrust::inclusive_scan(tidemark::par_nosync(step), x.begin(), x.end(), x.begin());
  stream.synchronize();  // before the host looks
  float last = x.back();
  EXPECT_EQ(last, 1000.0F);
}

#endif

// A row of docs/guides/coming_from.md:
// | `device_uvector<T> x(n, stream, mr)` |
TEST_F(documented, vectors_of_thrust_and_rmm_accept_a_resource) {
  using T = float;
  constexpr std::size_t n = 1000;
  tidemark::test::machine_pool memory = make_pool();
  const tidemark::device_vector<T> x(n, &memory);
  EXPECT_EQ(numbers_in(x).size(), n);
  EXPECT_EQ(x.get_allocator().resource(), &memory);
  EXPECT_EQ(tidemark::cuda_resource{memory}, tidemark::cuda_resource{memory});  // an `mr` of RMM
}

TEST_F(documented, thrusts_allocator_and_policy_accept_the_handle) {
  tidemark::test::machine_pool blocks = make_pool();
  tidemark::thrust_resource memory{&blocks};
  thrust::device_vector<float, thrust::mr::allocator<float, decltype(memory)>> x(1000, &memory);
  thrust::sequence(thrust::device(&memory), x.begin(), x.end());
  thrust::sort(thrust::device(&memory), x.begin(), x.end());
  EXPECT_EQ(x[999], 999.0F);
}

TEST(documented_for_cccl, handle_satisfies_the_cccl_concepts) {
  tidemark::pool blocks;
  tidemark::cuda_resource memory{blocks};
  cuda::mr::resource_ref<cuda::mr::host_accessible> reference{memory};
  EXPECT_TRUE((cuda::mr::resource_with<decltype(reference), cuda::mr::host_accessible>));
}

TEST(documented_for_thrust, thrust_resource_works_as_an_upstream) {
  thrust::mr::new_delete_resource system;
  tidemark::foreign_resource upstream{system};
  tidemark::upstream_arena step{&upstream};
  EXPECT_NE(step.allocate(1000), nullptr);
}

}  // namespace
