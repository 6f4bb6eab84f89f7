// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas that a team of threads shares, and their scopes.
#pragma once

#include <tidemark/team/shared_arena.hpp>
#include <tidemark/team/shared_arena_options.hpp>
