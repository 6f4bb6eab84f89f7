# SPDX-License-Identifier: Apache-2.0
# tidemark_peers: the allocators that ours are measured beside, as far as they are installed.
add_library(tidemark_peers INTERFACE)

foreach(llvm_version 22 21 20 19)
  find_path(TIDEMARK_LLVM_INCLUDE llvm/Support/Allocator.h PATHS /usr/lib/llvm-${llvm_version}/include NO_DEFAULT_PATH)
  find_library(TIDEMARK_LLVM_LIBRARY LLVM-${llvm_version} LLVM PATHS /usr/lib/llvm-${llvm_version}/lib NO_DEFAULT_PATH)
endforeach()
if(TIDEMARK_LLVM_INCLUDE AND TIDEMARK_LLVM_LIBRARY)
  target_include_directories(tidemark_peers SYSTEM INTERFACE ${TIDEMARK_LLVM_INCLUDE})
  target_link_libraries(tidemark_peers INTERFACE ${TIDEMARK_LLVM_LIBRARY})
  target_compile_definitions(tidemark_peers INTERFACE TIDEMARK_PEER_LLVM)
else()
  message(STATUS "tidemark: left out of the benchmarks: llvm::BumpPtrAllocator (llvm-22-dev is not installed)")
endif()
