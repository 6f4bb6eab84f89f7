# SPDX-License-Identifier: Apache-2.0
# tidemark_peers: the installed peer allocators. peers.hpp provides them as memory resources. Macros
# (TIDEMARK_PEER_...) announce peers that are used by their own types. The benchmarks list missing peers when
# they run.
add_library(tidemark_peers STATIC ${CMAKE_CURRENT_LIST_DIR}/peers.cpp)
target_include_directories(tidemark_peers PUBLIC ${CMAKE_CURRENT_LIST_DIR})
target_compile_features(tidemark_peers PUBLIC cxx_std_20)
target_link_libraries(tidemark_peers PUBLIC ${CMAKE_DL_LIBS} PRIVATE tidemark_warnings)

function(tidemark_peer_is_there name) # library or target
  target_link_libraries(tidemark_peers PUBLIC ${ARGN})
  target_compile_definitions(tidemark_peers PUBLIC TIDEMARK_PEER_${name})
endfunction()

foreach(llvm_version 22 21 20 19)
  find_path(TIDEMARK_LLVM_INCLUDE llvm/Support/Allocator.h PATHS /usr/lib/llvm-${llvm_version}/include NO_DEFAULT_PATH)
  find_library(TIDEMARK_LLVM_LIBRARY LLVM-${llvm_version} LLVM PATHS /usr/lib/llvm-${llvm_version}/lib NO_DEFAULT_PATH)
endforeach()
if(TIDEMARK_LLVM_INCLUDE AND TIDEMARK_LLVM_LIBRARY)
  target_include_directories(tidemark_peers SYSTEM PUBLIC ${TIDEMARK_LLVM_INCLUDE})
  tidemark_peer_is_there(LLVM ${TIDEMARK_LLVM_LIBRARY})
endif()

find_package(boost_container CONFIG QUIET)
if(boost_container_FOUND)
  tidemark_peer_is_there(BOOST Boost::container)
endif()

find_package(foonathan_memory CONFIG QUIET)
if(foonathan_memory_FOUND)
  tidemark_peer_is_there(FOONATHAN foonathan_memory)
endif()

find_package(Protobuf MODULE QUIET)
if(Protobuf_FOUND)
  tidemark_peer_is_there(PROTOBUF protobuf::libprotobuf)
endif()
