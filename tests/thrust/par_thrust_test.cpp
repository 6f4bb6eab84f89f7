// SPDX-License-Identifier: Apache-2.0
// Strategy: Thrust's algorithms with temporaries from a resource, with each device system of Thrust. The
// results equal those of the standard's algorithms on the host, the requests to the resource and to its
// upstream are counted, and a resource that refuses is unchanged.
//
// The system determines which algorithms take temporaries. With CUDA nearly all do. With CPP those that sort,
// and stable_partition; with TBB also unique and remove_if, and reduce_by_key on long ranges; with OMP also
// reduce, scans of long ranges, and copy_if, but the temporaries of sorts come from the heap. Tests that want
// to see temporaries therefore use `stable_partition`.
#include "thrust_machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory_resource>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <thrust/copy.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>
#include <cuda/std/functional>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry.hpp>

#include "calling_upstream.hpp"
#include "logging_resource.hpp"
#include "thrust_elements.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {

struct is_even {
  TIDEMARK_HOST_DEVICE bool operator()(int x) const noexcept { return x % 2 == 0; }
};

/// Compares the algorithms on `Policy` with those of the standard for the same numbers.
template <class Vector, class Policy>
class algorithms {
 public:
  algorithms(Vector& numbers, std::vector<int> const& same, Policy policy)
      : numbers_{numbers}, same_{same}, policy_{policy} {}

  void sort() {
    thrust::sort(policy_, numbers_.begin(), numbers_.end(), ::cuda::std::greater<int>{});
    std::ranges::sort(same_, std::greater{});
    EXPECT_EQ(numbers_in(numbers_), same_);
  }
  void stable_sort_by_key(Vector& values) {
    // The values are the old positions of the numbers, so that an unstable sort is found.
    const auto n = static_cast<int>(same_.size());
    thrust::sequence(policy_, values.begin(), values.end());
    thrust::stable_sort_by_key(policy_, numbers_.begin(), numbers_.end(), values.begin());
    std::vector<int> order = numbers_from_to(0, n - 1);
    std::ranges::sort(order, {}, [&](int i) { return std::pair{same_[static_cast<std::size_t>(i)], i}; });
    std::ranges::sort(same_);
    EXPECT_EQ(numbers_in(numbers_), same_);
    EXPECT_EQ(numbers_in(values), order);
  }
  void stable_partition() {
    thrust::stable_partition(policy_, numbers_.begin(), numbers_.end(), is_even{});
    std::vector<int> parts;
    std::ranges::copy_if(same_, std::back_inserter(parts), is_even{});
    std::ranges::copy_if(same_, std::back_inserter(parts), std::not_fn(is_even{}));
    same_ = parts;
    EXPECT_EQ(numbers_in(numbers_), same_);
  }
  void reduce() {
    EXPECT_EQ(thrust::reduce(policy_, numbers_.begin(), numbers_.end()),
              std::reduce(same_.begin(), same_.end()));
  }
  void inclusive_scan() {
    thrust::inclusive_scan(policy_, numbers_.begin(), numbers_.end(), numbers_.begin());
    std::inclusive_scan(same_.begin(), same_.end(), same_.begin());
    EXPECT_EQ(numbers_in(numbers_), same_);
  }
  void unique() {
    const auto end = thrust::unique(policy_, numbers_.begin(), numbers_.end());
    numbers_.resize(static_cast<std::size_t>(end - numbers_.begin()));
    same_.erase(std::ranges::unique(same_).begin(), same_.end());
    EXPECT_EQ(numbers_in(numbers_), same_);
  }
  void copy_if(Vector& to) {
    const auto end = thrust::copy_if(policy_, numbers_.begin(), numbers_.end(), to.begin(), is_even{});
    to.resize(static_cast<std::size_t>(end - to.begin()));
    std::erase_if(same_, std::not_fn(is_even{}));
    EXPECT_EQ(numbers_in(to), same_);
  }
  void reduce_by_key(Vector& keys, Vector& sums) {
    const auto ends = thrust::reduce_by_key(policy_, numbers_.begin(), numbers_.end(), numbers_.begin(),
                                            keys.begin(), sums.begin());
    keys.resize(static_cast<std::size_t>(ends.first - keys.begin()));
    sums.resize(static_cast<std::size_t>(ends.second - sums.begin()));
    std::vector<int> expected_keys, expected_sums;
    for (const int number : same_) {
      if (expected_keys.empty() || expected_keys.back() != number) {
        expected_keys.push_back(number);
        expected_sums.push_back(0);
      }
      expected_sums.back() += number;
    }
    EXPECT_EQ(numbers_in(keys), expected_keys);
    EXPECT_EQ(numbers_in(sums), expected_sums);
  }

 private:
  Vector& numbers_;
  std::vector<int> same_;
  Policy policy_;
};

namespace {

/// `n` numbers below `bound`, the same ones each time.
std::vector<int> mixed(std::size_t n, unsigned bound = 1000) {
  std::minstd_rand random{7};
  std::vector<int> numbers(n);
  for (int& number : numbers) number = static_cast<int>(random() % bound);
  return numbers;
}

class policies : public thrust_machine {
 protected:
  using vector = device_vector<int, machine_arena>;

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
  // More threads than processors, so that races show on any machine.
  void SetUp() override { omp_set_num_threads(4); }
#endif

  /// Each algorithm once, on vectors in `data` and with `par`.
  template <class Policy>
  static void run_all(machine_arena& data, Policy policy, std::size_t n) {
    const std::vector<int> numbers = mixed(n);
    const auto run = [&](auto body) {
      machine_arena::scope scope{data};
      vector here(numbers.begin(), numbers.end(), &data);
      body(algorithms<vector, Policy>{here, numbers, policy});
    };
    run([](auto on) { on.sort(); });
    run([&](auto on) {
      vector values(n, &data);
      on.stable_sort_by_key(values);
    });
    run([](auto on) { on.stable_partition(); });
    run([](auto on) { on.reduce(); });
    run([](auto on) { on.inclusive_scan(); });
    run([](auto on) { on.unique(); });
    run([&](auto on) {
      vector to(n, &data);
      on.copy_if(to);
    });
    run([&](auto on) {
      vector keys(n, &data), sums(n, &data);
      on.reduce_by_key(keys, sums);
    });
  }
};

// ---- results ----

// A.4
TEST_F(policies, return_correct_results_for_all_lengths) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  for (const std::size_t n : {1u, 2u, 100u, 4097u, 20'000u}) {
    SCOPED_TRACE(n);
    machine_arena::scope scope{step};
    run_all(data, par(step), n);
  }
}

TEST_F(policies, return_the_same_results_without_waiting) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  const std::vector<int> numbers = mixed(20'000);
  vector waited(numbers.begin(), numbers.end(), &data), not_waited(waited);
  EXPECT_EQ(thrust::reduce(par_nosync(step), waited.begin(), waited.end()),
            thrust::reduce(par(step), waited.begin(), waited.end()));
  thrust::sort(par(step), waited.begin(), waited.end());
  thrust::sort(par_nosync(step), not_waited.begin(), not_waited.end());
  thrust::inclusive_scan(par(step), waited.begin(), waited.end(), waited.begin());
  thrust::inclusive_scan(par_nosync(step), not_waited.begin(), not_waited.end(), not_waited.begin());
  wait();
  EXPECT_EQ(numbers_in(not_waited), numbers_in(waited));
}

TEST_F(policies, return_the_same_results_for_any_resource_type_and_named_stream) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  std::pmr::memory_resource& erased = step;
  run_all(data, par(erased, stream()), 5000);
  run_all(data, par(step, stream()), 5000);
  machine_pool blocks = make_pool();
  run_all(data, par(blocks), 5000);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
}

// ---- sources of temporaries ----

// A.4
TEST_F(policies, allocate_and_free_temporaries_of_the_resource) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  statistics_resource counted{&step};
  const std::vector<int> numbers = mixed(20'000);
  vector here(numbers.begin(), numbers.end(), &data);
  const std::size_t data_bytes = data.stats().peak_bytes;
  thrust::stable_partition(par(counted, stream()), here.begin(), here.end(), is_even{});
  EXPECT_GE(counted.stats().allocations, 1u);
  EXPECT_GE(counted.stats().peak_bytes, here.size() * sizeof(int));
  EXPECT_EQ(counted.stats().used_blocks, 0u);
  EXPECT_EQ(counted.stats().used_bytes, 0u);
  EXPECT_GE(step.stats().peak_bytes, here.size() * sizeof(int));
  EXPECT_EQ(data.stats().peak_bytes, data_bytes);
}

// A.5
TEST_F(policies, allocate_nothing_from_the_system_once_the_arena_is_warm) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  arena_stats warm;
  for (int round = 0; round < 6; ++round) {
    machine_arena::scope scope{step};
    run_all(data, par(step), 5000);
    const arena_stats now = step.stats();
    if (round == 0) warm = now;
    EXPECT_GT(now.peak_bytes, 0u);
    EXPECT_EQ(now.system_calls, warm.system_calls) << "in round " << round;
    EXPECT_EQ(now.committed_bytes, warm.committed_bytes);
    EXPECT_EQ(now.chunks, warm.chunks);
    EXPECT_EQ(now.peak_bytes, warm.peak_bytes);
  }
}

#if THRUST_DEVICE_SYSTEM != THRUST_DEVICE_SYSTEM_CUDA  // chunks of a resource are written by the host

TEST_F(policies, ignore_a_stream_without_cuda) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  int something = 0;
  const auto no_stream = reinterpret_cast<gpu::stream_handle>(&something);
  run_all(data, par(step, no_stream), 1000);
  run_all(data, par_nosync(step, no_stream), 1000);
}

// A.13
// Guards are written around blocks, which the host can do in its own memory.
TEST_F(policies, pass_on_each_failure_of_the_resource_and_leak_nothing) {
  const violation_recorder violations;
  machine_arena data = make_arena();
  test_resource memory;
  EXPECT_GE(fail_each_allocation(memory, [&] { run_all(data, par(memory), 20'000); }), 1u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
}

#endif

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP

/// A resource of any thread, which knows whether it was asked for memory inside a parallel region.
struct region_resource {
  region_resource() {
    heap.on_allocate = [this] { ++(omp_get_level() > 0 ? requests_inside : requests_outside); };
  }

  std::atomic<int> requests_inside{0}, requests_outside{0};
  calling_upstream heap;
};

TEST_F(policies, allocate_nothing_from_the_resource_in_a_parallel_region_of_thrust) {
  region_resource memory;
  machine_arena data = make_arena();
  run_all(data, par(memory.heap), 5000);
  EXPECT_EQ(memory.requests_inside, 0);
  EXPECT_GT(memory.requests_outside, 0);
}

TEST_F(policies, allocate_from_the_resource_in_a_parallel_region_of_the_program) {
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 4; ++i) {
    machine_arena step = make_arena();
    std::vector<int> numbers = mixed(1000);
    thrust::stable_partition(par(step), numbers.data(), numbers.data() + numbers.size(), is_even{});
#pragma omp critical
    EXPECT_GT(step.stats().peak_bytes, 0u);
  }
}

// The fault of Thrust: when it sorts, each thread of its region calls the policy's allocator by itself. Once
// fixed, detail/omp_temporaries.hpp can go.
TEST_F(policies, plain_thrust_sort_allocates_temporaries_in_a_parallel_region) {
  region_resource memory;
  thrust::device_vector<int> numbers(5000);
  thrust::sort(thrust::device(thrust_allocator<std::byte>{&memory.heap}), numbers.begin(), numbers.end());
  EXPECT_GT(memory.requests_inside, 0);
}

#endif

// ---- refusals ----

TEST_F(policies, pass_on_out_of_memory_of_a_limit_resource) {
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  limit_resource limited{&step, 1000};
  const std::vector<int> numbers = mixed(20'000);
  vector here(numbers.begin(), numbers.end(), &data);
  EXPECT_THROW(thrust::stable_partition(par(limited, stream()), here.begin(), here.end(), is_even{}),
               out_of_memory);
  EXPECT_EQ(limited.stats().used_blocks, 0u);
  EXPECT_EQ(limited.stats().refused, 1u);
  EXPECT_EQ(step.position(), 0u);
  limited.set_limit(16 * MiB);
  thrust::copy(numbers.begin(), numbers.end(), here.begin());
  algorithms{here, numbers, par(limited, stream())}.stable_partition();
}

// A.4
TEST_F(policies, reject_a_stream_other_than_the_resources_stream) {
  int something = 0;
  const auto other_stream = reinterpret_cast<gpu::stream_handle>(&something);
  machine_arena step = make_arena();
  machine_arena data = make_arena();
  bound_resource bound{stream(), &step};
  EXPECT_THROW((void)par(bound, other_stream), std::invalid_argument);
  EXPECT_THROW((void)par_nosync(bound, other_stream), std::invalid_argument);
  run_all(data, par(bound), 100);
  run_all(data, par(bound, stream()), 100);
}

}  // namespace
}  // namespace tidemark::test
