// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>

import tidemark;
import tidemark.mpi;

int main() {
  tidemark::basic_arena<tidemark::mpi::mpi_memory> buffers{{.name = "halo"}, tidemark::mpi::mpi_memory{}};
  try {
    (void)buffers.allocate(1);
  } catch (std::exception const&) {
    std::puts(buffers.space().refusal());  // a program that is no rank of a job
  }
}
