// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for programs that run on MPI.
#pragma once

#include <tidemark/mpi/dynamic_window.hpp>
#include <tidemark/mpi/mpi_error.hpp>
#include <tidemark/mpi/mpi_memory.hpp>
#include <tidemark/mpi/persistent_allreduce.hpp>
#include <tidemark/mpi/same_layout.hpp>
#include <tidemark/mpi/shared_window_memory.hpp>
