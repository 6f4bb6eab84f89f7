// SPDX-License-Identifier: Apache-2.0
/// @file
/// All adapters for Thrust, CCCL and RMM. Needs the headers of CCCL >= 3.0 and of the CUDA runtime.
#pragma once

#include <tidemark/thrust/cuda_resource.hpp>
#include <tidemark/thrust/foreign_resource.hpp>
#include <tidemark/thrust/par.hpp>
#include <tidemark/thrust/thrust_allocator.hpp>
#include <tidemark/thrust/thrust_resource.hpp>
#include <tidemark/thrust/vectors.hpp>
