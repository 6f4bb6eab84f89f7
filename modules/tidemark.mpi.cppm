// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for programs that run on MPI.
module;

#include <tidemark/mpi.hpp>

export module tidemark.mpi;

export namespace tidemark::mpi {

// Memory sources
using tidemark::mpi::mpi_memory;
using tidemark::mpi::shared_window_memory;

// Memory for puts and gets of peers
using tidemark::mpi::displacement;
using tidemark::mpi::dynamic_window;
using tidemark::mpi::window_registrar;

// Plans across ranks
using tidemark::mpi::layout_comparison;
using tidemark::mpi::persistent_allreduce;
using tidemark::mpi::same_layout;

// Errors
using tidemark::mpi::mpi_error;

}  // namespace tidemark::mpi
