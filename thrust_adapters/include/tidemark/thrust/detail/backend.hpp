// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the names for Thrust's device system of this translation unit. Owns nothing.
#pragma once

#include <thrust/detail/config.h>

// One program may have .cu files and translation units of another system, such as OpenMP's. Definitions that
// differ between systems have a namespace for each system, as Thrust's own names do.
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#define TIDEMARK_THRUST_SYSTEM for_cuda
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
#define TIDEMARK_THRUST_SYSTEM for_omp
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_TBB
#define TIDEMARK_THRUST_SYSTEM for_tbb
#else
#define TIDEMARK_THRUST_SYSTEM for_cpp
#endif

// Thrust calls constructors and comparisons from functions for host and device.
#if defined(__CUDACC__)
#define TIDEMARK_HOST_DEVICE __host__ __device__
#else
#define TIDEMARK_HOST_DEVICE
#endif
