// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for programs that run on MPI.
module;

#include <tidemark/mpi.hpp>

export module tidemark.mpi;

export namespace tidemark::mpi {

// Where memory comes from
using tidemark::mpi::mpi_memory;
using tidemark::mpi::shared_window_memory;

// Memory that peers put into and get from
using tidemark::mpi::displacement;
using tidemark::mpi::dynamic_window;
using tidemark::mpi::window_registrar;

// Plans of several ranks
using tidemark::mpi::layout_comparison;
using tidemark::mpi::persistent_allreduce;
using tidemark::mpi::same_layout;

// Errors
using tidemark::mpi::mpi_error;

}  // namespace tidemark::mpi
