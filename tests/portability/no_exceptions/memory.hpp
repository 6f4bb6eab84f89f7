// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory_resource>

/// The program's memory. When it runs out the program ends, because nothing between here and `main` catches.
std::pmr::memory_resource& program_memory();

/// How many blocks the program holds of it.
unsigned long long program_blocks();
