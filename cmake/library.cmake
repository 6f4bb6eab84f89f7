# SPDX-License-Identifier: Apache-2.0
# The two libraries of the host part, and the two of the device part (TIDEMARK_DEVICE):
#   tidemark::headers   the headers and their compiled code, for targets that include (also with nvcc)
#   tidemark::tidemark  the modules, for targets that import
#   tidemark::cuda_headers, tidemark::cuda  the same for devices
# The adapters are headers and modules: tidemark::thrust_headers, tidemark::thrust; tidemark::mpi_headers,
# tidemark::mpi.
# BUILD_SHARED_LIBS makes libraries with compiled code shared. Module libraries are always static: they have
# only initializers, which a program may have twice.

if(TIDEMARK_CUDA OR TIDEMARK_THRUST OR TIDEMARK_TORCH)
  set(TIDEMARK_DEVICE ON)
endif()
if(NOT TIDEMARK_DEVICE AND (TIDEMARK_BUILD_TESTS OR TIDEMARK_BUILD_EXAMPLES OR TIDEMARK_BUILD_BENCH))
  message(FATAL_ERROR "tidemark: the tests, examples and benchmarks need TIDEMARK_DEVICE: set it, or "
    "-DTIDEMARK_BUILD_TESTS=OFF -DTIDEMARK_BUILD_EXAMPLES=OFF -DTIDEMARK_BUILD_BENCH=OFF")
endif()

# Inside another project a library is built only if a target links it. Installed libraries are always built.
set(built_when_linked OFF)
if(NOT PROJECT_IS_TOP_LEVEL AND NOT TIDEMARK_INSTALL)
  set(built_when_linked ON)
endif()

# Common properties of all libraries. Symbols are visible even if a surrounding project hides its own.
function(tidemark_set_up_library target export_name output_name)
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${export_name} OUTPUT_NAME ${output_name} EXCLUDE_FROM_ALL ${built_when_linked}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    POSITION_INDEPENDENT_CODE ON VISIBILITY_INLINES_HIDDEN OFF)
  set_property(TARGET ${target} PROPERTY CXX_VISIBILITY_PRESET)
endfunction()

# Writes <tidemark/core/config.hpp> below a folder.
function(tidemark_write_config directory checks asan msan valgrind)
  set(TIDEMARK_CHECKS ${checks})
  set(TIDEMARK_ASAN_VALUE ${asan})
  set(TIDEMARK_MSAN_VALUE ${msan})
  set(TIDEMARK_VALGRIND_VALUE ${valgrind})
  foreach(switch TIDEMARK_WORKSPACE_POOLING TIDEMARK_NVTX)
    set(${switch}_VALUE 0)
    if(${switch})
      set(${switch}_VALUE 1)
    endif()
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/pmr/include/tidemark/core/config.hpp.in ${directory}/tidemark/core/config.hpp @ONLY)
endfunction()
set(asan 0)
set(msan 0)
set(valgrind 0)
if("${TIDEMARK_SANITIZE} ${CMAKE_CXX_FLAGS}" MATCHES "address")
  set(asan 1)
endif()
if("${TIDEMARK_SANITIZE} ${CMAKE_CXX_FLAGS}" MATCHES "memory")
  set(msan 1)
endif()
if(TIDEMARK_VALGRIND)
  set(valgrind 1)
endif()
set(TIDEMARK_GENERATED_INCLUDE ${PROJECT_BINARY_DIR}/include)
tidemark_write_config(${TIDEMARK_GENERATED_INCLUDE} ${TIDEMARK_CHECKS} ${asan} ${msan} ${valgrind})

file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pmr/include/*.hpp)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pmr/src/*.cpp)
file(GLOB_RECURSE modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/modules/*.cppm)
set(cuda_modules ${modules})
list(FILTER cuda_modules INCLUDE REGEX "tidemark\\.cuda\\.cppm$")
set(thrust_modules ${modules})
list(FILTER thrust_modules INCLUDE REGEX "tidemark\\.thrust\\.cppm$")
set(mpi_modules ${modules})
list(FILTER mpi_modules INCLUDE REGEX "tidemark\\.mpi\\.cppm$")
list(REMOVE_ITEM modules ${cuda_modules} ${thrust_modules} ${mpi_modules})

find_package(Threads REQUIRED)

# Hides the source folder from users of the installed library. (A module target's option would itself be
# installed.)
set(without_folder $<$<COMPILE_LANG_AND_ID:CXX,Clang,GNU>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# Avoids unique symbols, which g++ makes of inline variables and templates: a shared object that defines one
# is never unloaded.
set(unloadable $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
add_library(tidemark_headers ${sources})
target_compile_options(tidemark_headers PRIVATE ${without_folder} ${unloadable})
add_library(tidemark::headers ALIAS tidemark_headers)
tidemark_set_up_library(tidemark_headers headers tidemark)
set_target_properties(tidemark_headers PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
target_sources(tidemark_headers PUBLIC
  FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/pmr/include ${TIDEMARK_GENERATED_INCLUDE}
  FILES ${headers} ${TIDEMARK_GENERATED_INCLUDE}/tidemark/core/config.hpp)
target_compile_features(tidemark_headers PUBLIC cxx_std_20)
# A build path only, because the package searches for DLPack on each machine.
target_include_directories(tidemark_headers SYSTEM PUBLIC $<BUILD_INTERFACE:${dlpack_include}>)
if(TIDEMARK_VALGRIND AND NOT TIDEMARK_VALGRIND_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
  target_include_directories(tidemark_headers SYSTEM PUBLIC $<BUILD_INTERFACE:${TIDEMARK_VALGRIND_INCLUDE_DIR}>)
endif()
target_link_libraries(tidemark_headers PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:tidemark_warnings>)
target_link_libraries(tidemark_headers PRIVATE ${CMAKE_DL_LIBS})  # for function names and for NVTX tools
if(TIDEMARK_NVTX)
  target_include_directories(tidemark_headers SYSTEM PRIVATE ${TIDEMARK_NVTX_INCLUDE_DIR})
endif()

# The device part uses no type of the toolkit, except in the real driver and in the annotations for its tools.
set(cuda_root ${PROJECT_SOURCE_DIR}/thrust_adapters)
file(GLOB_RECURSE cuda_headers CONFIGURE_DEPENDS ${cuda_root}/include/*.hpp)
set(thrust_headers ${cuda_headers})
list(FILTER thrust_headers INCLUDE REGEX "/tidemark/thrust[./]")
list(REMOVE_ITEM cuda_headers ${thrust_headers})
if(TIDEMARK_DEVICE)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${cuda_root}/src/*.cpp)
  if(TIDEMARK_CUDA)
    list(REMOVE_ITEM cuda_sources ${cuda_root}/src/cuda/driver/absent_driver.cpp)
  else()
    list(REMOVE_ITEM cuda_sources ${cuda_root}/src/cuda/driver/system_driver.cpp)
  endif()
  add_library(tidemark_cuda_headers ${cuda_sources})
  target_compile_options(tidemark_cuda_headers PRIVATE ${without_folder} ${unloadable})
  add_library(tidemark::cuda_headers ALIAS tidemark_cuda_headers)
  tidemark_set_up_library(tidemark_cuda_headers cuda_headers tidemark_cuda)
  set_target_properties(tidemark_cuda_headers PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  target_sources(tidemark_cuda_headers PUBLIC
    FILE_SET HEADERS BASE_DIRS ${cuda_root}/include FILES ${cuda_headers})
  target_link_libraries(tidemark_cuda_headers PUBLIC tidemark_headers PRIVATE $<BUILD_INTERFACE:tidemark_warnings>)
  target_link_libraries(tidemark_cuda_headers PRIVATE ${CMAKE_DL_LIBS})  # loads the driver and NCCL at run time
  if(TIDEMARK_CUDA)  # for <cuda.h>
    target_include_directories(tidemark_cuda_headers SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endif()

# The header-only adapters for Thrust, CCCL and RMM, with CCCL's headers. THRUST_DEVICE_SYSTEM of the
# including target selects Thrust's device system.
if(TIDEMARK_THRUST)
  add_library(tidemark_thrust_headers INTERFACE)
  add_library(tidemark::thrust_headers ALIAS tidemark_thrust_headers)
  set_target_properties(tidemark_thrust_headers PROPERTIES EXPORT_NAME thrust_headers VERIFY_INTERFACE_HEADER_SETS ON)
  target_sources(tidemark_thrust_headers INTERFACE
    FILE_SET HEADERS BASE_DIRS ${cuda_root}/include FILES ${thrust_headers})
  target_link_libraries(tidemark_thrust_headers INTERFACE tidemark_cuda_headers)
  # For CCCL before 3.1; later versions ignore it.
  target_compile_definitions(tidemark_thrust_headers INTERFACE LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
  # Build paths only, because the package searches for these folders on each machine.
  target_include_directories(tidemark_thrust_headers SYSTEM INTERFACE
    "$<BUILD_INTERFACE:${TIDEMARK_CCCL_INCLUDE_DIR};${TIDEMARK_CUDART_INCLUDE_DIR}>")
endif()

# The package finds MPI's own target again.
if(TIDEMARK_MPI)
  set(mpi_root ${PROJECT_SOURCE_DIR}/adapters/mpi/include)
  file(GLOB_RECURSE mpi_headers CONFIGURE_DEPENDS ${mpi_root}/*.hpp)
  add_library(tidemark_mpi_headers INTERFACE)
  add_library(tidemark::mpi_headers ALIAS tidemark_mpi_headers)
  set_target_properties(tidemark_mpi_headers PROPERTIES EXPORT_NAME mpi_headers VERIFY_INTERFACE_HEADER_SETS ON)
  target_sources(tidemark_mpi_headers INTERFACE FILE_SET HEADERS BASE_DIRS ${mpi_root} FILES ${mpi_headers})
  target_link_libraries(tidemark_mpi_headers INTERFACE tidemark_headers MPI::MPI_CXX)
endif()

# Inside another project the importing targets are known once the whole project is read.
if(NOT TIDEMARK_MODULES)
  if(NOT PROJECT_IS_TOP_LEVEL)
    set(stubs tidemark::tidemark)
    if(TIDEMARK_DEVICE)
      list(APPEND stubs tidemark::cuda)
    endif()
    if(TIDEMARK_THRUST)
      list(APPEND stubs tidemark::thrust)
    endif()
    if(TIDEMARK_MPI)
      list(APPEND stubs tidemark::mpi)
    endif()
    tidemark_refuse_importers("${CMAKE_SOURCE_DIR}" "${stubs}" "${no_modules}" GLOBAL)
  endif()
  return()
endif()

# Adds the library of a part: its compiled sources, with the module interfaces `files` on top.
function(tidemark_add_library target part headers files)
  add_library(${target} STATIC)
  tidemark_set_up_library(${target} ${part} ${target}_modules)
  set_target_properties(${target} PROPERTIES CXX_SCAN_FOR_MODULES ON)
  target_sources(${target} PUBLIC FILE_SET CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR}/modules FILES ${files})
  target_link_libraries(${target} PUBLIC ${headers} PRIVATE $<BUILD_INTERFACE:tidemark_warnings>)
  # CMake compiles an importer's copy of our interfaces with -c and --precompile. Clang and clang-scan-deps warn
  # about -c, and clang-scan-deps ignores -Wno-unused-command-line-argument.
  target_compile_options(${target} INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Qunused-arguments>)
endfunction()

tidemark_add_library(tidemark tidemark tidemark_headers "${modules}")
add_library(tidemark::tidemark ALIAS tidemark)
if(TIDEMARK_DEVICE)
  tidemark_add_library(tidemark_cuda cuda tidemark_cuda_headers "${cuda_modules}")
  add_library(tidemark::cuda ALIAS tidemark_cuda)
endif()
if(TIDEMARK_THRUST)
  tidemark_add_library(tidemark_thrust thrust tidemark_thrust_headers "${thrust_modules}")
  add_library(tidemark::thrust ALIAS tidemark_thrust)
  # An importer's Thrust must use the same device system.
  target_compile_definitions(tidemark_thrust
    PUBLIC THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_${TIDEMARK_THRUST_DEVICE_SYSTEM})
endif()
if(TIDEMARK_MPI)
  tidemark_add_library(tidemark_mpi mpi tidemark_mpi_headers "${mpi_modules}")
  add_library(tidemark::mpi ALIAS tidemark_mpi)
endif()

# Inside another project the interfaces adopt the importing targets' dialect, once all targets are known.
if(NOT PROJECT_IS_TOP_LEVEL)
  set(module_targets tidemark)
  if(TIDEMARK_DEVICE)
    list(APPEND module_targets tidemark_cuda)
  endif()
  if(TIDEMARK_THRUST)
    list(APPEND module_targets tidemark_thrust)
  endif()
  if(TIDEMARK_MPI)
    list(APPEND module_targets tidemark_mpi)
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]]
    CALL tidemark_take_dialect_of_importers [[${CMAKE_SOURCE_DIR}]] [[${module_targets}]] COMPILE_OPTIONS)")
endif()
