// SPDX-License-Identifier: Apache-2.0
// Prints which CUDA device there is, or why there is none; the exit status says whether.
#include <cstdio>

#include "this_device.hpp"

int main() {
  const tidemark::test::this_device device = tidemark::test::find_device();
  std::puts(device.text.c_str());
  return device.found ? 0 : 1;
}
