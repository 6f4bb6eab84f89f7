// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <cstddef>
#include <memory_resource>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/thrust.hpp>

using namespace tidemark;

struct no_resource {};

void misuse(arena& step, device_arena& device, pool& blocks, device_vector<int>& numbers,
            std::pmr::memory_resource& any) {
  const device_vector<int> of_device(10, &device), of_any(10, 1, &any);
  const device_vector<int, device_arena> concrete(10, &device);
  const host_vector<int, arena> of_host(numbers.begin(), numbers.end(), &step);
  const universal_vector<int> universal({1, 2, 3}, &blocks);
  (void)par(step);
#if CASE == 1  // message: (no matching constructor|no matching function)
  const device_vector<int> without;
#elif CASE == 2   // message: (no matching constructor|no matching function)
  const device_vector<int> without(10);
#elif CASE == 3   // message: (no matching constructor|no matching function)
  const host_vector<int> without{1, 2, 3};
#elif CASE == 4   // message: (no matching|could not convert|no known conversion|cannot convert)
  const device_vector<int> of_null(10, nullptr);
#elif CASE == 5   // message: the host must not touch the memory of this R
  const host_vector<int, device_arena> of_device_memory(10, &device);
#elif CASE == 6   // message: the host must not touch the memory of this R
  thrust_resource<device_arena, void*> memory{&device};
#elif CASE == 7   // message: (no matching|could not convert|no known conversion|cannot convert)
  const device_vector<int, arena> of_another(10, &blocks);
#elif CASE == 8   // message: R is a std::pmr::memory_resource
  no_resource none;
  thrust_resource<no_resource> memory{&none};
#elif CASE == 9   // message: (no viable|conversion)
  thrust_resource<arena> memory = &step;
#elif CASE == 10  // message: (nodiscard|discard|unused|ignoring)
  par(step);
#elif CASE == 11  // message: (nodiscard|discard|unused|ignoring)
  par_nosync(step, nullptr);
#elif CASE == 12  // message: (no matching constructor|no matching function)
  numbers.assign(100, 7);  // Thrust makes a vector without a resource of it
#elif CASE == 13  // message: (no matching constructor|no matching function)
  const device_vector<int> copy(of_host, &device);  // and a copy without a resource of this
#elif CASE == 14  // message: (constraints not satisfied|does not satisfy|unsatisfied)
  foreign_resource<no_resource>* none = nullptr;
  (void)sizeof(*none);
#elif CASE == 15  // message: its memory; say it
  cuda_resource<std::pmr::memory_resource> memory{any};
#elif CASE == 16  // message: (explicit|no viable|no known conversion|could not convert|conversion)
  cuda_resource<arena> memory = step;
#elif CASE == 17  // message: the host must not touch the memory of this resource
  const host_vector<int> of_device_memory(10, &device);
#elif CASE == 18  // message: the host must not touch the memory of this resource
  const universal_vector<int> of_device_memory(10, &device);
#elif CASE == 19  // message: the host must not touch the memory of this R
  thrust_resource<device_arena, thrust::universal_ptr<void> > memory{&device};
#endif
}
