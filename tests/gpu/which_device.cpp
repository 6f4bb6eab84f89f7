// SPDX-License-Identifier: Apache-2.0
// Prints which CUDA device there is, or why there is none; the exit status says whether.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int devices = 0;
  cudaDeviceProp device{};
  cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) status = cudaGetDeviceProperties(&device, 0);
  if (status != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: %s\n",
                status != cudaSuccess ? cudaGetErrorString(status) : "the count is 0");
    return 1;
  }
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  std::printf("%s, compute capability %d.%d, driver for CUDA %d.%d, runtime %d.%d\n", device.name,
              device.major, device.minor, driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
              CUDART_VERSION % 1000 / 10);
  return 0;
}
