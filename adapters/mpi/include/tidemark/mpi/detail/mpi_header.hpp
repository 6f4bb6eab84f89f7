// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI's header without the C++ bindings, which MPI 3 removed and some implementations still have.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

// Persistent collectives before MPI 4.
#if MPI_VERSION < 4 && defined OPEN_MPI
#include <mpi-ext.h>
#endif
