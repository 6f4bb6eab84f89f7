# SPDX-License-Identifier: Apache-2.0
# MPI, whichever implementation CMake finds (MPI_CXX_COMPILER and MPI_HOME say which). Its C interface alone is used.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
option(TIDEMARK_MPI "Memory for programs on MPI (needs an MPI with persistent collectives)" ${MPI_CXX_FOUND})
if(TIDEMARK_MPI AND NOT MPI_CXX_FOUND)
  message(FATAL_ERROR "TIDEMARK_MPI is on, and CMake finds no MPI: install MPICH >= 4 or Open MPI >= 4, set MPI_CXX_COMPILER "
    "to its compiler, or leave the option off")
endif()
if(NOT TIDEMARK_MPI)
  message(STATUS "tidemark: there is no MPI, or TIDEMARK_MPI is off: no memory for programs on it")
endif()
