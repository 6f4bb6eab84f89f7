// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas: bump allocation with rewind, their scopes, scratch arenas of each thread, arenas for teams of
/// threads, and arenas that other processes read.
#pragma once

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/arena_mark.hpp>
#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/arena_scope.hpp>
#include <tidemark/arena/local_arena.hpp>
#include <tidemark/arena/process_arena.hpp>
#include <tidemark/arena/process_view.hpp>
#include <tidemark/arena/scratch.hpp>
#include <tidemark/arena/shared_arena.hpp>
#include <tidemark/arena/shared_arena_mark.hpp>
#include <tidemark/arena/shared_arena_options.hpp>
#include <tidemark/arena/shared_arena_scope.hpp>
#include <tidemark/arena/use_after_rewind.hpp>
