// SPDX-License-Identifier: Apache-2.0
// Kernels that use a device arena's memory rightly and wrongly, for compute-sanitizer, which sees the wrong
// uses only through the arena's annotations. tests/gpu/go runs each case and reads the report.
//
//   use_after_rewind right     nothing is wrong
//   use_after_rewind rewound   a kernel reads a block that was rewound over, of an arena that has others
//   use_after_rewind reset     a kernel reads a block of an arena that was reset
//   use_after_rewind padding   a kernel writes behind the end of a block, into the padding of its alignment
//     use_after_rewind reused    a kernel reads a block that it did not write, at the address of one
//                                that was written
//   use_after_rewind leaked    a block of an arena that is never destroyed
#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;

__global__ void set(int* x, int value) { *x = value; }
__global__ void copy(int const* from, int* to) { *to = *from; }

int run(std::string_view what) {
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, {.reserve = 64 * MiB, .name = "arena of the step"}};
  device_arena results{gpu::virtual_memory{stream}, {.reserve = 64 * MiB, .name = "results"}};
  auto* const kept = results.push<int>(uninitialized);
  if (what == "rewound") set<<<1, 1, 0, stream.get()>>>(memory.push<int>(uninitialized), 1);
  int* temporary = nullptr;
  {
    device_arena::scope scope{memory};
    temporary = memory.push<int>(uninitialized);
    set<<<1, 1, 0, stream.get()>>>(temporary, 2);
    if (what == "right") copy<<<1, 1, 0, stream.get()>>>(temporary, kept);
    if (what == "padding") set<<<1, 1, 0, stream.get()>>>(temporary + 1, 3);
    (void)cudaStreamSynchronize(stream.get());  // under the tool a wrong kernel ends all later work
  }
  if (what == "rewound" || what == "reset") copy<<<1, 1, 0, stream.get()>>>(temporary, kept);
  if (what == "leaked")
    (void)(new device_arena{gpu::virtual_memory{stream}, {.name = "arena that leaks"}})
        ->push<int>(uninitialized);
  if (what == "reused") {
    int const* const again = memory.push<int>(uninitialized);
    std::printf("the same address: %s\n", again == temporary ? "yes" : "no");
    copy<<<1, 1, 0, stream.get()>>>(again, kept);
  }
  (void)cudaStreamSynchronize(stream.get());
  std::printf("use_after_rewind %.*s: the kernels ran\n", static_cast<int>(what.size()), what.data());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_after_rewind right|rewound|reset|padding|reused|leaked\n");
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
