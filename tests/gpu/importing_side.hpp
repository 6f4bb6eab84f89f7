// SPDX-License-Identifier: Apache-2.0
// Functions of a translation unit that imports, for a translation unit that nvcc compiles and that therefore
// includes.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace importing {

std::size_t position_of(std::pmr::memory_resource& an_arena);
void throw_out_of_memory();

}  // namespace importing
