// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which of Thrust's device systems this translation unit is for. Owns nothing.
#pragma once

#include <thrust/detail/config.h>

// One program may have .cu files and translation units of another system, such as OpenMP's. What differs
// between them has its own namespace in each, as Thrust's own names have.
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
