// SPDX-License-Identifier: Apache-2.0
// A kernel that uses a device arena's memory rightly, or after a rewind: for compute-sanitizer, which sees
// the second only by the annotations. ./run gpu runs it in all three ways.
//
//   use_after_rewind right     nothing is wrong
//   use_after_rewind rewound   a kernel reads a block that was rewound over, of an arena that has others
//   use_after_rewind reset     the same of an arena in which nothing is left
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;

__global__ void set(int* x, int value) { *x = value; }
__global__ void copy(int const* from, int* to) { *to = *from; }

int run(char const* what) {
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, {.reserve = 64 * MiB, .name = "step"}};
  device_arena results{gpu::virtual_memory{stream}, {.reserve = 64 * MiB, .name = "results"}};
  auto* const kept = results.push<int>(uninitialized);
  if (std::strcmp(what, "rewound") == 0) set<<<1, 1, 0, stream.get()>>>(memory.push<int>(uninitialized), 1);
  int* temporary = nullptr;
  {
    device_arena::scope scope{memory};
    temporary = memory.push<int>(uninitialized);
    set<<<1, 1, 0, stream.get()>>>(temporary, 2);
    if (std::strcmp(what, "right") == 0) copy<<<1, 1, 0, stream.get()>>>(temporary, kept);
    stream.synchronize();
  }
  if (std::strcmp(what, "right") != 0) copy<<<1, 1, 0, stream.get()>>>(temporary, kept);
  stream.synchronize();
  std::printf("use_after_rewind %s: the kernels ran\n", what);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_after_rewind right|rewound|reset\n");
    return 2;
  }
  if (!test::found_device("use_after_rewind")) return test::skipped;
  try {
    return run(argv[1]);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "use_after_rewind: %s\n", error.what());
    return 1;
  }
}
