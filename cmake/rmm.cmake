# SPDX-License-Identifier: Apache-2.0
# RMM from its wheels. Its tests and benchmarks link `tidemark_rmm`, which exists only if RMM was found. RMM's
# own package needs a newer CMake. RMM includes its own CCCL, which is newer than a toolkit's and must be
# found first: link `tidemark_rmm` before all other targets, and only to sources compiled for the host.
include_guard(GLOBAL)
set(TIDEMARK_RMM_ROOT "" CACHE PATH "RMM, for tests and measurements: the folder of its include and lib")
if(NOT TIDEMARK_RMM_ROOT)
  message(STATUS "tidemark: no RMM (TIDEMARK_RMM_ROOT): its tests are skipped, and it is left out of the measurements on a GPU")
  return()
endif()
set(rmm_libraries)
foreach(name rmm rapids_logger)
  find_library(TIDEMARK_${name}_LIBRARY ${name} PATHS ${TIDEMARK_RMM_ROOT}/lib NO_CACHE NO_DEFAULT_PATH REQUIRED)
  list(APPEND rmm_libraries ${TIDEMARK_${name}_LIBRARY})
endforeach()
add_library(tidemark_rmm INTERFACE)
target_include_directories(tidemark_rmm SYSTEM INTERFACE
  ${TIDEMARK_RMM_ROOT}/include/rapids ${TIDEMARK_RMM_ROOT}/include)
target_link_libraries(tidemark_rmm INTERFACE ${rmm_libraries} CUDA::cudart_static)
