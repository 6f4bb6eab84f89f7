# SPDX-License-Identifier: Apache-2.0
# Thrust, CUB and libcu++ form one package of headers, CCCL, from the toolkit or on its own. CCCL includes a
# header of the CUDA runtime.
find_path(TIDEMARK_CCCL_INCLUDE_DIR thrust/mr/memory_resource.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ${nvcc_folder}/.. ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda
  PATH_SUFFIXES include/cccl cccl include DOC "Folder that has thrust/, cub/ and cuda/ of CCCL >= 3.0 in it")
find_path(TIDEMARK_CUDART_INCLUDE_DIR cuda_runtime_api.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ${nvcc_folder}/.. ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda
  PATH_SUFFIXES include DOC "Folder that has cuda_runtime_api.h in it")
mark_as_advanced(TIDEMARK_CCCL_INCLUDE_DIR TIDEMARK_CUDART_INCLUDE_DIR)
# Version of the CCCL in a folder of headers, as 3000001; 0 for versions before the common package.
function(tidemark_cccl_version folder result)
  set(version 0)
  if(EXISTS "${folder}/cuda/std/__cccl/version.h")
    file(STRINGS "${folder}/cuda/std/__cccl/version.h" line REGEX "#define CCCL_VERSION ")
    string(REGEX MATCH "[0-9]+" version "${line}")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()
tidemark_cccl_version("${TIDEMARK_CCCL_INCLUDE_DIR}" cccl_version)
set(thrust_default OFF)
set(thrust_found OFF)
if(cccl_version GREATER_EQUAL 3000000 AND TIDEMARK_CUDART_INCLUDE_DIR)
  set(thrust_found ON)
  set(thrust_default ${TIDEMARK_DEVICE})
endif()
option(TIDEMARK_THRUST "Adapters for Thrust, CCCL and RMM (needs the headers of CCCL and of the CUDA runtime)" ${thrust_default})
if(TIDEMARK_THRUST AND NOT thrust_found)
  message(FATAL_ERROR "TIDEMARK_THRUST needs CCCL >= 3.0 and cuda_runtime_api.h: install a CUDA toolkit >= 13.0, or set "
    "TIDEMARK_CCCL_INCLUDE_DIR and TIDEMARK_CUDART_INCLUDE_DIR to their folders")
endif()
if(NOT TIDEMARK_THRUST)
  set(thrust_why "TIDEMARK_THRUST is off")
  if(NOT thrust_found)
    set(thrust_why "it needs the headers of CCCL >= 3.0 and of the CUDA runtime (CUDA toolkit >= 13.0)")
  endif()
  message(STATUS "tidemark: left out: the adapters for Thrust, CCCL and RMM (tidemark::thrust): ${thrust_why}")
endif()
set(thrust_system CPP)
if(TIDEMARK_CUDA)
  set(thrust_system CUDA)
endif()
set(TIDEMARK_THRUST_DEVICE_SYSTEM ${thrust_system} CACHE STRING "What the module tidemark.thrust takes for Thrust's device system")
set_property(CACHE TIDEMARK_THRUST_DEVICE_SYSTEM PROPERTY STRINGS CPP OMP TBB CUDA)

# Disables checks of UndefinedBehaviorSanitizer in functions of Thrust and of libcu++, because Thrust's own
# functions fail them. CCCL 3.0 reads an element through a missing object without members (x[i]) and places a
# pool's records at odd addresses. It also moves an empty range at null, and destroys elements without memory
# (tests/thrust/thrust_faults_test.cpp).
if(TIDEMARK_THRUST AND TIDEMARK_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(ignored "[{null,object-size,alignment,pointer-overflow}]\n")
  foreach(folder IN LISTS TIDEMARK_CCCL_INCLUDE_DIR TIDEMARK_CCCL_DIRS)
    string(APPEND ignored "src:${folder}/thrust/*\nsrc:${folder}/cuda/std/*\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ignored_of_thrust.txt CONTENT "${ignored}")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize-ignorelist=${PROJECT_BINARY_DIR}/ignored_of_thrust.txt>)
endif()
