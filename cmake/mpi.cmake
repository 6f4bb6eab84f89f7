# SPDX-License-Identifier: Apache-2.0
# Uses the MPI that CMake finds (set MPI_CXX_COMPILER or MPI_HOME to select), and only its C interface.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
option(TIDEMARK_MPI "Memory for programs on MPI (needs an MPI with persistent collectives)" ${MPI_CXX_FOUND})
if(TIDEMARK_MPI AND NOT MPI_CXX_FOUND)
  message(FATAL_ERROR "TIDEMARK_MPI is on, and CMake finds no MPI: install MPICH >= 4 or Open MPI >= 4, set MPI_CXX_COMPILER "
    "to its compiler, or leave the option off")
endif()
if(NOT TIDEMARK_MPI)
  set(mpi_why "TIDEMARK_MPI is off")
  if(NOT MPI_CXX_FOUND)
    set(mpi_why "CMake finds no MPI: install MPICH >= 4 or Open MPI >= 4 (Debian's libmpich-dev or libopenmpi-dev)")
  endif()
  message(STATUS "tidemark: left out: memory for programs on MPI (tidemark::mpi): ${mpi_why}")
endif()
