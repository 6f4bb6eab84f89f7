// SPDX-License-Identifier: Apache-2.0
// Prints the CUDA device, or the reason for its absence. The exit status tells whether a device exists.
#include <cstdio>

#include "this_device.hpp"

int main() {
  const tidemark::test::this_device device = tidemark::test::find_device();
  std::puts(device.text.c_str());
  return device.found ? 0 : 1;
}
