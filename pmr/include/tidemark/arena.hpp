// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas: bump allocation with rewind, their scopes, and the scratch arenas of each thread.
#pragma once

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/arena_scope.hpp>
#include <tidemark/arena/scratch.hpp>
