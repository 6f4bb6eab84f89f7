# SPDX-License-Identifier: Apache-2.0
# Configuration options of tidemark. Options that affect code go into <tidemark/core/config.hpp>.

include(cmake/tidemark-importers.cmake)
tidemark_find_why_not_to_import(no_modules)
set(modules_default ON)
if(no_modules)
  set(modules_default OFF)
endif()

set(TIDEMARK_CHECKS 1 CACHE STRING "Check level: 1 off the fast paths, 2 everything")
set_property(CACHE TIDEMARK_CHECKS PROPERTY STRINGS 1 2)
if(NOT TIDEMARK_CHECKS MATCHES "^[12]$")
  message(FATAL_ERROR "TIDEMARK_CHECKS is '${TIDEMARK_CHECKS}'; it must be 1 or 2; level 1 is always on")
endif()

option(TIDEMARK_WORKSPACE_POOLING "Workspaces keep memory; OFF: each acquisition is an allocation, and sweeps do nothing" ON)
set(TIDEMARK_WORKSPACE_CACHE_WAYS 4 CACHE STRING "Tensor headers that workspaces keep for each slot, 1 to 16")
if(NOT TIDEMARK_WORKSPACE_CACHE_WAYS MATCHES "^([1-9]|1[0-6])$")
  message(FATAL_ERROR "TIDEMARK_WORKSPACE_CACHE_WAYS is '${TIDEMARK_WORKSPACE_CACHE_WAYS}'; it must be 1 to 16")
endif()
option(TIDEMARK_VALGRIND "Announce memory to Valgrind (needs its headers)" OFF)
option(TIDEMARK_NVTX "Announce device memory to tools that listen to NVTX (needs its headers)" OFF)
option(TIDEMARK_FUZZ "Build the fuzz targets for libFuzzer, and no other test" OFF)
set(TIDEMARK_SANITIZE "" CACHE STRING "Sanitizers to build with, as in -fsanitize=")
option(TIDEMARK_DEVICE "The device part; TIDEMARK_CUDA, TIDEMARK_THRUST and TIDEMARK_TORCH turn it on" ON)
option(TIDEMARK_CUDA "The real driver behind the device part (needs nvcc)" OFF)
option(TIDEMARK_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(TIDEMARK_ALL_TESTS "Every configuration, option, consumer and benchmark, and models at length; OFF: each behaviour once" ON)
option(TIDEMARK_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(TIDEMARK_PLANNER "Build the package in planner/: the search for lower plans, tidemark-plan (needs CLI11), and both in C and Python" OFF)
option(TIDEMARK_BUILD_BENCH "Build the benchmarks" OFF)
option(TIDEMARK_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(TIDEMARK_TOOLS "Install tidemark-report" ON)
# On for ELF only, because these libraries hide their symbols by a version script.
set(hidden_default OFF)
if(PROJECT_IS_TOP_LEVEL AND TIDEMARK_DEVICE AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  set(hidden_default ON)
endif()
option(TIDEMARK_TORCH "libtidemark_torch.so, an allocator that PyTorch loads" ${hidden_default})
option(TIDEMARK_MODULES "Build the modules; without, tidemark::headers is all there is" ${modules_default})
option(TIDEMARK_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)

# Uses DLPack's own structures if its header exists and is recent enough: before 0.5 members had other names.
include(CheckCXXSourceCompiles)
find_path(TIDEMARK_DLPACK_INCLUDE_DIR dlpack/dlpack.h DOC "Folder that has dlpack/dlpack.h in it")
mark_as_advanced(TIDEMARK_DLPACK_INCLUDE_DIR)
if(NOT TIDEMARK_DLPACK_FITS)
  unset(TIDEMARK_DLPACK_FITS CACHE)  # it may have been installed since
endif()
if(TIDEMARK_DLPACK_INCLUDE_DIR)
  set(CMAKE_REQUIRED_INCLUDES ${TIDEMARK_DLPACK_INCLUDE_DIR})
  check_cxx_source_compiles(
    "#include <dlpack/dlpack.h>\nint main() { return DLTensor{}.device.device_type == kDLCPU; }" TIDEMARK_DLPACK_FITS)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
set(dlpack_default OFF)
if(TIDEMARK_DLPACK_FITS)
  set(dlpack_default ON)
endif()
option(TIDEMARK_DLPACK "Use the structures of DLPack's header (dlpack/dlpack.h), not equal ones of our own" ${dlpack_default})
if(TIDEMARK_DLPACK AND NOT TIDEMARK_DLPACK_FITS)
  message(FATAL_ERROR "TIDEMARK_DLPACK needs dlpack/dlpack.h of DLPack >= 0.5: install it, or set TIDEMARK_DLPACK_INCLUDE_DIR")
endif()
if(NOT TIDEMARK_DLPACK AND NOT TIDEMARK_DLPACK_FITS)
  message(STATUS "tidemark: tensors use copies of DLPack's structures, because DLPack >= 0.5 is not found (Debian's libdlpack-dev)")
endif()
set(TIDEMARK_DLPACK_VALUE 0)
set(dlpack_include)  # compiler option for its folder, if needed
if(TIDEMARK_DLPACK)
  set(TIDEMARK_DLPACK_VALUE 1)
  if(NOT TIDEMARK_DLPACK_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    set(dlpack_include ${TIDEMARK_DLPACK_INCLUDE_DIR})
  endif()
endif()

# NVTX is headers only and comes with the CUDA toolkit. Tests also use this result.
get_filename_component(nvcc_folder "$ENV{CUDACXX}" DIRECTORY)
find_path(TIDEMARK_NVTX_INCLUDE_DIR nvtx3/nvToolsExtMem.h
  HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ${nvcc_folder}/.. ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
  PATH_SUFFIXES include DOC "Folder that has nvtx3/nvToolsExtMem.h in it")
mark_as_advanced(TIDEMARK_NVTX_INCLUDE_DIR)
if(TIDEMARK_NVTX AND NOT TIDEMARK_NVTX_INCLUDE_DIR)
  message(FATAL_ERROR "TIDEMARK_NVTX needs nvtx3/nvToolsExtMem.h: install the CUDA toolkit, or set TIDEMARK_NVTX_INCLUDE_DIR")
endif()

find_path(TIDEMARK_VALGRIND_INCLUDE_DIR valgrind/memcheck.h DOC "Folder that has valgrind/memcheck.h in it")
mark_as_advanced(TIDEMARK_VALGRIND_INCLUDE_DIR)
if(TIDEMARK_VALGRIND AND NOT TIDEMARK_VALGRIND_INCLUDE_DIR)
  message(FATAL_ERROR "TIDEMARK_VALGRIND needs valgrind/memcheck.h: install Valgrind's headers (Debian's valgrind), or set "
    "TIDEMARK_VALGRIND_INCLUDE_DIR")
endif()

# One dialect for every target, because a module interface and its importers must agree. Inside another
# project its dialect applies.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT DEFINED CMAKE_CXX_STANDARD)
    set(CMAKE_CXX_STANDARD 20)
  endif()
  set(CMAKE_CXX_EXTENSIONS OFF)
endif()
set(CMAKE_CXX_STANDARD_REQUIRED ON)
# Off by default, because scanning costs more than compiling: only importing targets turn it on.
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

if(TIDEMARK_MODULES AND no_modules)
  message(FATAL_ERROR "TIDEMARK_MODULES is on, but ${no_modules}")
endif()
if(NOT TIDEMARK_MODULES)
  if(NOT no_modules)
    set(no_modules "this tidemark was built without modules (TIDEMARK_MODULES=OFF)")
  endif()
  if(TIDEMARK_BUILD_TESTS OR TIDEMARK_BUILD_EXAMPLES)
    message(FATAL_ERROR
      "tidemark: the tests and examples import, but ${no_modules}. Remove ${CMAKE_BINARY_DIR}, and set CXX or -G Ninja; or use ./run; "
      "or set -DTIDEMARK_BUILD_TESTS=OFF -DTIDEMARK_BUILD_EXAMPLES=OFF.")
  endif()
  message(STATUS "tidemark: target tidemark::tidemark is not available, because ${no_modules}")
endif()

# Applied to all targets or to no target, because sanitizers change the ABI of the standard containers and of
# ours.
if(TIDEMARK_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TIDEMARK_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${TIDEMARK_SANITIZE})
endif()

# Valgrind 3.19 of Debian 12 cannot read clang's DWARF 5.
if(TIDEMARK_VALGRIND)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fdebug-default-version=4>)
endif()

add_library(tidemark_warnings INTERFACE)
target_compile_options(tidemark_warnings INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,Clang,GNU>:-Wall -Wextra -Wpedantic>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wshadow -Wconversion -Wsign-conversion -Qunused-arguments>
  $<$<AND:$<BOOL:${TIDEMARK_WARNINGS_AS_ERRORS}>,$<COMPILE_LANG_AND_ID:CXX,Clang,GNU>>:-Werror>)
