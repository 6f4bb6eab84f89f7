# SPDX-License-Identifier: Apache-2.0
# Selects the CUDA toolkit of the device part. A machine may have several toolkits, one of them in the folders
# that compilers and linkers search by default. tests/gpu checks that all parts come from the selected
# toolkit.
set(TIDEMARK_CUDA_VERSION_MIN 13.0 CACHE STRING "Oldest CUDA toolkit to build with")

if(CMAKE_CUDA_COMPILER MATCHES "/")
  if(NOT EXISTS "${CMAKE_CUDA_COMPILER}")
    message(FATAL_ERROR "tidemark: ${CMAKE_CUDA_COMPILER} does not exist. Set TIDEMARK_CUDA_LATEST_ROOT in the environment to a "
      "toolkit with bin/nvcc, or use ./run test, which fetches one.")
  endif()
  # Stops here, because CMake would restart by itself and lose the preset's settings.
  if(TIDEMARK_CUDA_COMPILER_BEFORE AND NOT CMAKE_CUDA_COMPILER STREQUAL TIDEMARK_CUDA_COMPILER_BEFORE)
    message(FATAL_ERROR "tidemark: ${CMAKE_BINARY_DIR} was configured with ${TIDEMARK_CUDA_COMPILER_BEFORE}, not with "
      "${CMAKE_CUDA_COMPILER}: remove the folder, or configure it with --fresh")
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "tidemark: TIDEMARK_CUDA needs a working nvcc: install a CUDA toolkit >= ${TIDEMARK_CUDA_VERSION_MIN}, or set "
    "CUDACXX to its nvcc and CUDAHOSTCXX to a g++ that it accepts")
endif()
enable_language(CUDA)
set(TIDEMARK_CUDA_COMPILER_BEFORE "${CMAKE_CUDA_COMPILER}" CACHE INTERNAL "nvcc of this build folder")
find_package(CUDAToolkit REQUIRED)
message(STATUS "tidemark: nvcc of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, headers and libraries of "
  "${CUDAToolkit_VERSION} in ${CUDAToolkit_LIBRARY_ROOT}")
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS TIDEMARK_CUDA_VERSION_MIN)
  message(FATAL_ERROR "tidemark: ${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, and "
    "TIDEMARK_CUDA_VERSION_MIN is ${TIDEMARK_CUDA_VERSION_MIN}")
endif()
