// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory shared between processes: arenas that other processes read, and shared memory.
#pragma once

#include <tidemark/process/process_arena.hpp>
#include <tidemark/process/process_view.hpp>
#include <tidemark/process/shared_memory.hpp>
#include <tidemark/process/shared_memory_view.hpp>
