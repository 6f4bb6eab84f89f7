// SPDX-License-Identifier: Apache-2.0
/// @file
/// Thrust, CCCL and RMM: their containers and algorithms on tidemark's resources, and their resources in
/// tidemark. For translation units of a host compiler; .cu files include <tidemark/thrust.hpp>.
module;

#include <tidemark/thrust.hpp>

export module tidemark.thrust;

export namespace tidemark {

// Vectors
using tidemark::device_vector;
using tidemark::host_vector;
using tidemark::universal_vector;

// Temporaries of algorithms
using tidemark::par_nosync;
using tidemark::par;

// Handles to resources
using tidemark::cuda_resource;
using tidemark::thrust_allocator;
using tidemark::thrust_resource;

// Resources of other libraries
using tidemark::foreign_resource;
using tidemark::raw_memory_source;
using tidemark::stream_ordered_source;

}  // namespace tidemark
